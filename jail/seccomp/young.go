package seccomp

// youngCalls are calls that libseccomp 2.5 has no numbers for. A profile may
// name them; where the library does not know them they get the default errno,
// which Filter.Unresolved says. Source: the kernel's syscall tables up to 6.17.
var youngCalls = map[string]bool{
	"cachestat":         true, // 6.5
	"fchmodat2":         true, // 6.6
	"map_shadow_stack":  true, // 6.6
	"futex_wake":        true, // 6.7
	"futex_wait":        true, // 6.7
	"futex_requeue":     true, // 6.7
	"statmount":         true, // 6.8
	"listmount":         true, // 6.8
	"lsm_get_self_attr": true, // 6.8
	"lsm_set_self_attr": true, // 6.8
	"lsm_list_modules":  true, // 6.8
	"mseal":             true, // 6.10
	"uretprobe":         true, // 6.11
	"setxattrat":        true, // 6.13
	"getxattrat":        true, // 6.13
	"listxattrat":       true, // 6.13
	"removexattrat":     true, // 6.13
	"open_tree_attr":    true, // 6.15
	"file_getattr":      true, // 6.17
	"file_setattr":      true, // 6.17
}
