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
	{"each of them by the main thread, another thread, a fork and a program; one record of each", "TestAttacksOnFilesByEveryActor, TestAttacksOnTheOutlet"},
	{"bytes written to a pipe that holds a page of a file", "TestAPipeLeavesTheFileItHolds"},
	{"a neighbour whose name begins alike, or is it in other letters", "TestAttacksOnNeighbours, TestPathsAreComparedByComponents"},
	// Reads.
	{"password hashes, keys, cloud credentials, the environment", "TestReachOfASession/ssh keys, TestReachOfASession/cloud credentials, TestReachOfASession/shadow, TestReachOfASession/the launcher's environment"},
	{"a secret on every other way to it", "TestAttacksOnSecrets/by its path, TestAttacksOnSecrets/by /proc/self/root, TestAttacksOnSecrets/after fchdir, TestAttacksOnSecrets/by a descriptor without rights, opened again"},
	{"whether a secret is there", "TestAttacksOnSecrets/by its size, TestAttacksOnSecrets/by the names beside it"},
	{"processes' environment, memory, descriptors, root", "TestReachOfASession/environments in /proc, TestAttacksOnProc/memory of the parent, TestAttacksOnProc/descriptors of the parent, TestAttacksOnSecrets/by the parent's root"},
	{"another session's files, shared memory, environment, before and after it", "TestSessionsSeeNothingOfEachOther, TestAttacksBetweenSessions"},
	{"what an earlier session leaves in a worker that was ready", "TestFingerprintFromStock, TestPostureFromStock"},
	{"the launcher's state, record and layers", "TestAGuestCannotReachTheRecord, TestShadowLayersArePrivate, TestTheLogIsNeitherInTheSessionNorSeenByIt"},
	{"an extension's code read, changed, imported, evaluated from arguments", "TestExtensionCodeIsOutOfReach"},
	{"an extension planted for the next session; a root that others can write, or a link", "TestAPlantedExtensionIsNotLoaded, TestReportCannotMakeTheHomesExtensions, TestExtListAndDoctorTellOfEachFile"},
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
	{"Unix sockets with a path", "TestUnixSocketsOfTheHost, TestReachOfASession/path socket"},
	{"FIFOs of the host and of other sessions", "TestPipesOfTheHost, TestPipesOfOtherSessionsFromStock"},
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
	// The server.
	{"ids guessed, sessions of other callers, on every route", "TestSessionsOfOthersAreNotThere, TestIDsAreNotGuessed"},
	{"no token, a part of one, another's; pages in a browser, names led to loopback", "TestLoopbackAsksForATokenAndIsNoWebsite/no token, TestLoopbackAsksForATokenAndIsNoWebsite/a page, TestLoopbackAsksForATokenAndIsNoWebsite/a name that leads here"},
	{"files of tokens that others can read", "TestTokenFiles/readable by the group"},
	{"other users at the socket, and a session's own processes", "TestWhoMayConnect, TestH1ClientWithoutTheRight, TestSessionsCannotReachTheirServer"},
	{"the server's socket, tokens and port from within a session", "TestSessionsCannotReachTheirServer"},
	{"directories outside of the roots, links on the way, another user's", "TestDirectoriesStayBeneathTheRoots, TestForeignUsersNameOnlyTheirOwn"},
	{"mode, limits, times and policy chosen by a request", "TestRequestsOnlyTighten"},
	{"a socket in the place of another's", "TestSocketsOfOthersAreLeftAlone, TestH1SecondServer"},
	{"secrets in log, metrics and errors", "TestNothingSecretIsTold"},
	{"more than one may have", "TestWhatIsFullIsSaid, TestCallsOfASessionWait"},
	// The wire and the door.
	{"forged, doubled, early and unknown replies; another session's id", "TestAttacksOnTheDoor/an answer to nobody's question, TestAttacksOnTheDoor/the reply of its own cell, TestAttacksOnTheDoor/one number twice, TestAttacksOnTheDoor/another's calls cancelled, TestWhatIsNotInTheProtocolEndsThatWorkerAndNothingElse/a second reply"},
	{"lines that are too long, too deep, no text, no JSON", "TestAttacksOnTheDoor/a line without end, TestAttacksOnTheDoor/nesting, TestAttacksOnTheDoor/NaN, TestAttacksOnTheDoor/a key twice, TestAttacksOnTheDoor/half a surrogate pair, TestAttacksOnTheDoor/a zero byte"},
	{"the wire closed, shut down, flooded, left in half a line", "TestAttacksOnTheDoor/the wire closed, TestAttacksOnTheDoor/the wire shut down, TestAttacksOnTheDoor/calls that nobody reads the answers of, TestAttacksOnTheDoor/half a line"},
	{"the wire in a child, a thread, after a fork", "TestAttacksOnTheDoor/a child made by Linux's own fork, TestAttacksOnTheDoor/a child that outlives its cell, TestAttacksOnTheDoor/another program, TestAttacksOnTheDoor/a thread whose cell has ended"},
	{"our modules and objects replaced, frames, ctypes", "TestAttacksOnTheDoor/the worker's scope, TestAttacksOnTheDoor/the worker's classes, TestAttacksOnTheDoor/the request of the running cell, TestAttacksOnTheDoor/modules and builtins, TestAttacksOnTheDoor/our encoder"},
	{"a call from what has outlived its cell; handles after their end", "TestAttacksOnTheDoor/a thread whose cell has ended, TestAttacksOnTheDoor/a task whose cell has ended, TestAttacksOnTheDoor/the scope of an ended cell"},
	{"another session, role or purpose named in a call", "TestAttacksOnTheDoor/the scope of another session, TestAttacksOnTheDoor/a role beside the arguments, TestAttacksOnTheDoor/a role and a purpose in the arguments, TestAttacksOnTheDoor/a tool of another purpose, TestAttacksOnTheDoor/a tool of another role"},
	{"pickles, format strings, lines that imitate the wire", "TestAttacksOnTheDoor/pickles and format strings, TestAttacksOnTheDoor/lines of the wire on stdout"},
	{"traces, hooks, limits, handlers, the end or a crash during a call", "TestAttacksOnTheDoor/traces, TestAttacksOnTheDoor/the end of the process during a call, TestAttacksOnTheDoor/a crash in C during a call"},
	{"numbers exhausted, arguments confused, a flood, a budget spent twice", "TestAttacksOnTheDoor/the last number there is, TestAttacksOnTheDoor/a number beyond it, TestAttacksOnTheDoor/arguments of another shape, TestAttacksOnTheDoor/a flood of calls, TestAttacksOnTheDoor/a budget, TestABudgetIsNotSpentTwice"},
	{"a worker that says anything at all, for as long as one likes", "TestWorkersThatSpeakTheWireAtRandom"},
	// Processes.
	{"processes of the host: signals, traces, descriptors, limits, memory", "TestAttacksOnProcesses, TestAttacksOnLinux/a child of its own traced, TestAttacksOnLinux/process_vm_readv, TestAttacksOnLinux/a descriptor taken from a process"},
	{"forks, threads, programs, the dead and what makes more of them", "TestAttacksOnBounds/processes, TestAttacksOnBounds/threads, TestAttacksOnBounds/dead processes, TestAttacksOnBounds/processes by vfork, TestTaskLimitRefusesAFlood, TestTaskLimitRefusesForksAndCountsThem"},
	{"daemons that ignore signals, after the cell, a reset, the session", "TestEndsWhole, TestKillEndsDaemonsToo, TestKillEndsDaemons, TestResetLeavesNoChildBehind"},
	{"a launcher that is killed at any moment", "TestSIGKILL, TestKilledLauncherLeavesNoProcess, TestShadowCommitThatIsKilled"},
	{"the first process of the jail, and all of them at once", "TestAttacksOnBounds/the first process of the jail killed, TestAttacksOnBounds/all processes killed"},
	{"programs of memory, under a list of programs", "TestAListOfProgramsHasNoMemory"},
	{"ids and powers raised, also by programs", "TestAttacksOnLinux/setuid 0, TestAttacksOnLinux/setresuid to root, TestAttacksOnLinux/a capability raised, TestSetUIDProgram, TestNoIDIsLeftOnFiles, TestPosture"},
	{"walls of its own, which only tighten; programs that begin anew or have no file", "TestAttacksOnLinux/a host's name, TestAttacksOnLinux/a seccomp filter with a listener"},
	{"calls of other architectures and of no Linux yet, arguments with high bits", "TestAttacksOnLinux/int 0x80 for , TestAttacksOnLinux/x32 for , TestOtherABIsDie, TestUnknownNumbersAreNotImplemented, TestAttacksOnLinux/clone user with bits"},
	{"each call with each argument that the filter looks at", "TestProgramsDecideAsTheProfileSays, TestPinnedAnswers"},
	{"keys, objects of System V, shared memory, from one session to another", "TestAttacksOnLinux/add_key, TestAttacksBetweenSessions"},
	{"terminals: input forged, selections, disciplines", "TestAttacksOnLinux/a terminal's input forged, TestAttacksOnLinux/a console's selection, TestAttacksOnLinux/a terminal's line discipline"},
	// Time and resources.
	{"memory by each way that there is to take it", "TestAttacksOnBounds/memory, TestAttacksOnBounds/memory of files without a name, TestAttacksOnBounds/memory that is shared, TestAttacksOnBounds/buffers of pipes, TestAttacksOnBounds/buffers of sockets, TestMemoryLimitIsToldApartFromAKill"},
	{"disk: private places, one file, holes, the record, full-output files", "TestAttacksOnBounds/the space of /tmp, TestAttacksOnBounds/a file without end, TestADiskThatIsFullIsAnErrorAndTakesNothingBack, TestAFullTmpfs, TestFullOutputsEndAtTheirLimitAndSaySo, TestAFullOutputFileHasAnEnd"},
	{"descriptors, terminals, watches, lists of events, arguments, links in a circle, depth", "TestAttacksOnBounds/descriptors, TestAttacksOnBounds/terminals, TestAttacksOnBounds/watches of files, TestAttacksOnBounds/arguments of a program, TestAttacksOnBounds/links in a circle, TestAttacksOnBounds/a directory that is"},
	{"spins and waits, in Python and in C, deaf to signals, stopped, with clocks of its own", "TestAttacksOnBounds/a spin, TestAttacksOnBounds/a spin in C, TestAttacksOnBounds/a spin with each signal blocked, TestAttacksOnBounds/the worker stopped by its child, TestAttacksOnBounds/clocks that go backwards, TestAnInterruptThatACellSwallowsEndsIt"},
	{"output, values, names and errors without end, and bytes that are no text", "TestAttacksOnBounds/a flood on stdout, TestAttacksOnBounds/a value without end, TestAttacksOnBounds/a name of an error without end, TestAttacksOnBounds/bytes that are no text, TestOldPipesAreBounded, TestTheOutputOfAScopeIsBounded"},
	// The network.
	{"addresses in every spelling, names, redirections and smuggled requests at the outlet", "TestAttacksOnTheOutlet, TestEachRequestIsDecided, TestForgedRequests, TestSmuggling, TestSocks, TestNetworkOfADocument"},
	{"a name that leads to an address of the host", "TestRebinding"},
	{"questions about names: which, how many, how long", "TestNames, TestNamesHaveABound, TestTheListOfNameServersIsTheSessionsOwn"},
	{"another session's outlet, and ports of the host", "TestTheOutletIsTheSessionsOwn, TestInboundPorts"},
	// The launcher.
	{"a session directory that is a link, another's, swapped, moved or removed", "TestSessionDirectories, TestSwappedSessionDirectoryIsRefused, TestAttacksOnBounds/the session directory moved away, TestAttacksOnBounds/the session directory removed"},
	{"files in the session directory in the place of Python's own", "TestAttacksOnBounds/files of the session directory"},
	{"descriptors closed or exchanged, a worker that forks, ends or crashes", "TestAttacksOnBounds/every descriptor closed, TestAttacksOnBounds/stdout made the wire, TestAttacksOnBounds/a child that goes on as the worker, TestAttacksOnBounds/a crash in C"},
	{"the observer ended, or kept from hearing", "TestObserverThatEnds, TestBlindObserverEndsTheStart"},
	{"terminal sequences in names, on the operator's terminal", "TestClean, TestNamed, TestAttacksOnTheRecord"},
	{"variables of the launcher's environment", "TestBuiltInPoliciesPassNoSecrets, TestReachOfASession/the launcher's environment"},
	{"definitions that a worker makes up, and what they do when they are restored", "TestAWorkerCannotMakeDefinitions, TestARestoredDefinitionCallsNothing, TestWhatIsNoFileOfDefinitionsIsRefused"},
	{"an effect that is repeated, an approval that is used twice or late", "TestACheckpointRepeatsNoEffect, TestWhatWasBegunIsNeverDoneAgainByItself, TestAnApprovalIsForExactlyOneCall, TestAnApprovalExpires"},
	// The extension host.
	{"nested calls, cancelled and endless ones, workers that die", "TestNestedCallsGoThroughTheDoorAndNeverWaitForThemselves, TestACancelledCallUnwindsOrTheWorkerIsGivenUp, TestAWorkerThatDiesAnswersEveryCallAndTheNextStartsAfresh, TestManyCallsWithRandomCancels"},
	{"what extensions write and start", "TestTheLogIsBoundedAndNobodyElses, TestTheEndTakesAlongWhatWasStarted"},
	{"files that are no extension, are others', or changed since they were trusted; byte code", "TestWhatIsNoExtensionIsAWarningAndStopsNothing, TestOnlyTheOperatorsOwnFilesAreTaken, TestAPlantedExtensionIsNotLoaded, TestByteCodeOfAProjectIsNotRun"},
	// Not here, since the product has no such thing: files that the host collects and
	// unpacks; packages that the host installs; a policy that is loaded anew while a cell
	// runs (it is loaded once a session); Jupyter's ports. And the side channels of shared
	// processors and caches, which are not closed (SECURITY.md, Residuals).
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
