package jail

import (
	"os"
	"slices"
	"strings"
)

// idMapSince lists the file systems that can be id-mapped, with the Linux
// version that brought it (FS_ALLOW_IDMAP in the file system's type).
var idMapSince = map[string]release{
	"ext4": {5, 12}, "vfat": {5, 12}, "xfs": {5, 12}, "btrfs": {5, 15}, "ntfs3": {5, 15},
	"f2fs": {5, 17}, "erofs": {5, 19}, "overlay": {5, 19}, "squashfs": {6, 2}, "tmpfs": {6, 3},
	"ceph": {6, 7}, "bcachefs": {6, 7},
}

// kernelOwned are file systems that cannot be id-mapped and need not be: their
// files are Linux's own.
var kernelOwned = []string{
	"proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "debugfs", "tracefs", "securityfs",
	"pstore", "bpf", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "autofs", "efivarfs", "rpc_pipefs", "nsfs",
}

func mountsNow(kernel string) []MountPoint {
	return mountTable("/proc/self/mountinfo", parseRelease(kernel))
}

// mountTable reads the visible mounts. Of two at one path the later covers the
// earlier, and a later mount covers whatever was mounted below its path before.
func mountTable(mountinfo string, version release) []MountPoint {
	raw, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil
	}
	var table []MountPoint
	for line := range strings.Lines(string(raw)) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 2 {
			continue
		}
		mount := MountPoint{
			Path:     unescapeMount(left[4]),
			FSType:   right[0],
			Source:   unescapeMount(right[1]),
			ReadOnly: slices.Contains(strings.Split(left[5], ","), "ro"),
			IDMap:    idMapByType(right[0], version),
		}
		table = slices.DeleteFunc(table, func(earlier MountPoint) bool {
			return earlier.Path == mount.Path || strings.HasPrefix(earlier.Path, strings.TrimSuffix(mount.Path, "/")+"/")
		})
		table = append(table, mount)
	}
	return table
}

func idMapByType(fsType string, version release) Answer {
	if slices.Contains(kernelOwned, fsType) {
		return No
	}
	if since, known := idMapSince[fsType]; known {
		return answer(version.atLeast(since.major, since.minor))
	}
	return Unknown
}

// unescapeMount undoes mountinfo's octal escapes.
func unescapeMount(field string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(field)
}
