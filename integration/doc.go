// Package integration holds the tests that go the whole way of a cell: from the
// options a command would set, through kernel.Open, the jail and a real
// interpreter, back to the reply. It has no code of its own for others to use.
//
// What is where:
//
//   - case_*_test.go: small inputs on which products of this kind have failed
//     their users, named by case id. One table a group.
//   - contract_*_test.go: the promises of the python tool, one test each.
//   - attack*_test.go: attempts to get out, each with a control that shows the
//     attempt works where there is no jail. attack_list_test.go says which kind of
//     attempt has which tests.
//   - load_test.go: floods of refused operations, and launchers killed under them.
//     CELLBLOCK_LOAD is the share of the full number in percent; 5 without it.
//   - fault_*_test.go: hosts and sessions that run out of disk, memory, tasks or
//     descriptors, and processes that are stopped; apart_test.go gives those that need it
//     a process and small disks of their own.
//   - soak_test.go, serve_load_test.go: many sessions with faults at random ("make soak"),
//     and many at once through a server ("make load").
//   - posture_test.go: a live worker read from outside and compared whole.
//   - start_test.go, degrade_test.go: hosts and settings on which a start has to fail, or to say
//     what it does without.
//   - sweep_test.go: launchers that are killed at random moments.
//   - mcp_test.go, inspector_test.go: clients of the MCP front that are not ours.
//   - serve_test.go: "cellblock serve" as its operator and its clients use it.
//   - serve_through_test.go: the cases again, in sessions of a server.
//   - readme_test.go: the command lines of README and of the help texts.
//   - cpython_test.go: CPython's regression tests inside and outside the jail.
//   - imports_test.go: which package may import which.
//
// # Running
//
// "make build" has to come first, since the launcher carries the stage program.
// The suite is meant to be run as root and as an ordinary user; asuser.sh builds
// the test binary into a world-readable directory and runs it as another user.
//
// A test that needs something the host may lack asks a probe and skips with the
// reason. JAIL_TEST_REQUIRE, a list of names with commas between (see
// require_test.go), turns such a skip into a failure.
package integration
