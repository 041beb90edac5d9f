// Package suggest makes the smallest policy under which recorded sessions are clean:
// a base policy and the rules that its denials in the records ask for, each with what
// it was seen to be needed for.
//
//	made := suggest.Make(base, sessions, host, suggest.Options{})
//	os.Stdout.Write(made.Document.YAML(made.Comments()))
//
// It is pure: what it must know of the host comes in as a value. What a record says
// was chosen by code that nobody trusts, so that a suggestion opens nothing that the
// base or the built-in default hides, no directory that the host as a whole lives in,
// no way to other machines and no call to the launcher. What it leaves out stands
// beside it, with the reason.
//
// # Limitations
//
// A record holds what the policy of its session did not allow. What that policy let
// through, and the base does not, is not in it.
package suggest
