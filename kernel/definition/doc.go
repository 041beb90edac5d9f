// Package definition keeps the definitions of sessions: the source of functions,
// classes, imports and plain constants, by a name that the operator chooses.
//
//	store, err := definition.Open(dir, "analysis")
//	if err != nil { … }
//	defer store.Close()
//	kept, err := store.Load()
//
// The directory is the launcher's own: it belongs to its user, nobody else may
// write there, and it is hidden from every session. What stands in it is text of
// cells that the host has sent; it is executed in a jail, as any cell is.
//
// # Limitations
//
// What code has done to a definition afterwards, an attribute of a class that was
// set later, is not in its source and not kept.
package definition
