package integration

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// attackList says for each kind of attempt to get at files, at what lies beside a
// session, at the policy or at the record, which tests make it. A name after a slash
// is that of a row, as it stands in the sources; TestTheListOfAttacksIsTrue looks each
// up. What stands under "not here" has no test in this product, with the reason.
var attackList = []struct{ attack, tests string }{
	// Writes.
	{"open to write, create, truncate, without a name", "TestAttacksOnFiles/open for writing, TestAttacksOnFiles/create, TestAttacksOnFiles/O_TMPFILE"},
	{"openat with a descriptor and ..", "TestAttacksOnFiles/by a directory's descriptor and .."},
	{"openat2 with each flag", "TestAttacksOnFiles/openat2 with RESOLVE "},
	{"rename in both directions, exchange, whiteout", "TestAttacksOnFiles/rename out, TestAttacksOnFiles/a file taken into the session, TestAttacksOnFiles/exchange, TestAttacksOnFiles/a rename that leaves a whiteout"},
	{"link, by /proc/self/fd, without a name", "TestAttacksOnFiles/link out, TestAttacksOnFiles/linked by its descriptor, TestAttacksOnFiles/a file without a name linked out, TestAttacksOnFiles/a file of the host linked into the session"},
	{"a link out, then a write through it", "TestAttacksOnFiles/through a symbolic link in the session, TestAttacksOnFiles/by a chain of links"},
	{"a link swapped between check and use", "TestAttacksOnFiles/by a link that is swapped while it is used"},
	{"unlink, rmdir, mkdir, mknod, mkfifo", "TestAttacksOnFiles/unlink, TestAttacksOnFiles/rmdir, TestAttacksOnFiles/mkdir, TestAttacksOnFiles/mknod of a file, TestAttacksOnFiles/mkfifo"},
	{"truncate; descriptors that were inherited", "TestAttacksOnFiles/truncate, TestReachOfASession/descriptors"},
	{"chmod, chown, times, attributes, flags", "TestAttacksOnFiles/chmod, TestAttacksOnFiles/fchmodat2, TestAttacksOnFiles/chown, TestAttacksOnFiles/lchown, TestAttacksOnFiles/utime, TestAttacksOnFiles/setxattr, TestAttacksOnFiles/setxattrat, TestAttacksOnFiles/FS_IOC_SETFLAGS, TestMetadataOfTheTreeIsRefused"},
	{"/proc/self/root, cwd of another, fd", "TestAttacksOnFiles/by /proc/self/root, TestAttacksOnFiles/by the working directory of the parent, TestAttacksOnFiles/reopened by /proc/self/fd"},
	{"mounts of each kind", "TestAttacksOnLinux/mount tmpfs, TestAttacksOnLinux/open_tree clone, TestAttacksOnLinux/mount_setattr, TestAttacksOnLinux/fsopen"},
	{"a mount in a new user namespace", "TestAttacksOnLinux/unshare "},
	{"copy_file_range, sendfile, splice, reflink, fallocate, holes", "TestAttacksOnFiles/copy_file_range, TestAttacksOnFiles/sendfile, TestAttacksOnFiles/splice, TestAttacksOnFiles/a reflink, TestAttacksOnFiles/fallocate, TestAttacksOnFiles/a hole punched"},
	{"a shared mapping; files of its own mappings", "TestAttacksOnFiles/shared writable mapping, TestAttacksOnFiles/by the files of its own mappings"},
	{"io_uring", "TestAttacksOnLinux/io_uring_setup"},
	{"file handles", "TestAttacksOnLinux/open_by_handle_at"},
	{"fanotify; a watch of what is covered", "TestAttacksOnLinux/fanotify_init, TestAttacksOnSecrets/by a watch of its directory"},
	{"names with newline, non-UTF-8, of 255 and 4095 bytes", "TestAttacksOnFiles/a name with a newline, TestAttacksOnFiles/a name that is not UTF-8, TestAttacksOnFiles/a name of 255 bytes, TestAttacksOnFiles/a path of 4095 bytes"},
	{"set-uid programs", "TestSetUIDProgram, TestAttacksOnFiles/a file of the host linked into the session"},
	{"by a child, a grandchild, a thread, C code, another program", "TestAttacksOnFiles/by a child of another program, TestAttacksOnFiles/by a grandchild after its parent ended, TestAttacksOnFiles/by a thread, TestAttacksOnFiles/by C code, TestModesAgree"},
	{"a neighbour whose name begins alike, or is it in other letters", "TestAttacksOnNeighbours, TestPathsAreComparedByComponents"},
	// Reads.
	{"password hashes, keys, cloud credentials, the environment", "TestReachOfASession/ssh keys, TestReachOfASession/cloud credentials, TestReachOfASession/shadow, TestReachOfASession/the launcher's environment"},
	{"a secret on every other way to it", "TestAttacksOnSecrets/by its path, TestAttacksOnSecrets/by /proc/self/root, TestAttacksOnSecrets/after fchdir, TestAttacksOnSecrets/by a descriptor without rights, opened again"},
	{"whether a secret is there", "TestAttacksOnSecrets/by its size, TestAttacksOnSecrets/by the names beside it"},
	{"processes' environment, memory, descriptors, root", "TestReachOfASession/environments in /proc, TestAttacksOnProc/memory of the parent, TestAttacksOnProc/descriptors of the parent, TestAttacksOnSecrets/by the parent's root"},
	{"another session's files, shared memory, environment, before and after it", "TestSessionsSeeNothingOfEachOther, TestSharedMemoryBetweenSessions"},
	{"the launcher's state, record and layers", "TestAGuestCannotReachTheRecord, TestShadowLayersArePrivate, TestTheLogIsNeitherInTheSessionNorSeenByIt"},
	{"raw devices, /dev/mem, /dev/kmsg", "TestReachOfASession/raw disks, TestAttacksOnProc"},
	{"addresses and logs of Linux", "TestAttacksOnProc/kernel addresses, TestAttacksOnLinux/syslog"},
	{"control groups of others", "TestAttacksOnProc"},
	{"descriptors", "TestReachOfASession/descriptors, TestPosture"},
	{"core dumps", "TestReachOfASession/core dumps, TestAttacksOnLinux/core dumps switched on"},
	// What a layer carries over to the host.
	{"links in the layer, in the middle of a path and at its end", "TestCommitNeverFollowsWhatTheLayerHolds"},
	{"a path swapped during a commit", "TestCommitWhileTheHostChanges"},
	{"the host's file changed before a commit", "TestCommitKeepsOffWhatTheHostChanged"},
	{"FIFOs, sockets, devices, deep trees, odd names, holes, hard links", "TestCommitNeverFollowsWhatTheLayerHolds/a FIFO, TestCommitMakesNoDevices, TestCommitOfADeepTree, TestCommitOfATreeThatIsTooDeep, TestCommitMakesTheHostWhatTheSessionSaw/names that are no text, TestCommitMakesTheHostWhatTheSessionSaw/hard links, TestCommitMakesTheHostWhatTheSessionSaw/a hole"},
	{"files that the host runs by itself, also by a link or a directory's name", "TestCommitRefusesWhatTheHostWouldRun"},
	{"a success that is none is said", "TestShadowSaysWhatStays"},
	// The host's own files beside a session.
	{"a protected path that is absent, and stubs after a kill", "TestStubsComeAndGo, TestStubsSpareWhatIsSomebodysOwn, TestSweepFindsStubs, TestCasesE/no droppings"},
	{"rules inside rules, against what Linux does", "TestPolicyAndLinuxAgree, TestModesAgree, TestRulesOfPaths"},
	{"/proc/sys, sysrq, core_pattern, oom score", "TestAttacksOnProc"},
	{"sockets that write to the page cache", "TestAttacksOnSockets/AF_ALG, TestAttacksOnSockets/TCP_ULP, TestAttacksOnSockets/UDP_ENCAP"},
	// Policy and record.
	{"policy documents that are wrong", "TestBadDocuments, TestEveryKeyIsRead, TestLint"},
	{"decisions of Rego that are errors, undefined, or ask the machine", "TestWhatIsNoDecision, TestNothingOfTheMachineCanBeAsked"},
	{"the digest of the policy in the record", "TestDigestTellsPoliciesApart, TestARunIsRecorded"},
	{"a mode switched by files, variables, arguments or metadata", "TestAttacksOnTheMode"},
	{"records forged by names", "TestAttacksOnTheRecord, TestTextsCannotPoseAsRecordsOrActOnATerminal, TestNamed"},
	{"a record changed, cut, lengthened", "TestAChangeOfAnyByteIsFoundAndNamed, TestACutAtAnyByteIsFoundAndNamed, TestRecordsThatAreTakenAddedOrMovedAreFound"},
	{"a flood of records, and kills under it", "TestAMillionRefusedOpens, TestKilledLaunchersLoseNoRecord, TestWhatHappensAfterTheLastCellIsCounted"},
	{"secrets in the record", "TestNoSecretReachesTheFile, TestSecretsAreMaskedByRule"},
	{"hosts that lack a feature", "TestMissingFeatures, TestDegradationIsSaid, TestOverlayIsTriedTheLaunchersWay"},
	{"each call of the set-up failing", "TestEachCallOfTheSetUpFailing"},
	// Not here: artifacts that the host collects (it collects none); a policy loaded
	// anew while a cell runs (it is loaded once a session); HTTP surfaces (there are
	// none); the extension worker (not there yet).
}

// TestTheListOfAttacksIsTrue: each test and row that the list names is there.
func TestTheListOfAttacksIsTrue(t *testing.T) {
	require(t, needSources)
	functions, sources := map[string]bool{}, strings.Builder{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || d.Name() == "attack_list_test.go" {
			return err
		}
		text := readFile(t, path)
		sources.WriteString(text)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			functions[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(?:^|, )(Test\w+)(?:/(.*?))?(?:(?:, Test)|$)`)
	for _, a := range attackList {
		found := 0
		for rest := a.tests; rest != ""; {
			m := name.FindStringSubmatch(rest)
			if m == nil {
				t.Errorf("%s: cannot read %q", a.attack, rest)
				break
			}
			found++
			if !functions[m[1]] {
				t.Errorf("%s: there is no %s", a.attack, m[1])
			}
			if m[2] != "" && !strings.Contains(sources.String(), `"`+m[2]) {
				t.Errorf("%s: %s has no row %q", a.attack, m[1], m[2])
			}
			_, after, more := strings.Cut(rest[1:], ", Test")
			if rest = ""; more {
				rest = "Test" + after
			}
		}
		if found == 0 {
			t.Errorf("%s: no test", a.attack)
		}
	}
}
