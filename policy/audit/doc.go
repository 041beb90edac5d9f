// Package audit keeps the record of what sessions did and what the policy said
// to it: an append-only file of JSON lines in which every record carries the
// hash of the one before it.
//
//	log, err := audit.Open("/var/lib/cellblock/audit/s1.jsonl", audit.Options{})
//	if err != nil { … }
//	defer log.Close()
//	err = log.Append(audit.Record{Session: "s1", Op: audit.OpCellStart, Source: audit.SourceKernel})
//
//	found, err := audit.Verify(log.Path())
//	for _, f := range found.Findings { fmt.Println(f) } // record 12: is not what was written …
//
// # What is kept when
//
// Append has acknowledged a record when it returns nil: the record is in the
// file (write(2)) and the head beside it counts it, so that the end of the
// launcher by SIGKILL loses nothing. The end of the machine may: fdatasync(2)
// follows the records that start and end a session, and Close; with [SyncEach],
// every Append; with [SyncNone], nothing. What a killed writer had half written is cut off by the next
// Open, which says so in a record of its own.
//
// # The head
//
// FILE.head holds the number of records and the hash of the last one, twice: two
// slots of one sector each, written in turn, each with a sum of its own. One of
// them is whole at every moment, and replacing a slot costs one pwrite(2), where
// a rename would make ext4 flush a new file for every record (auto_da_alloc).
// The head is what shows that records were cut off at a record's boundary.
//
// # Limitations
//
// The chain has no key: who may write both files can make new ones that verify.
// Keep the hash that [Verify] reports in another place, and give it to
// [Expect] to have that excluded. Records that were written but not acknowledged
// before a kill can be cut off without a trace.
//
// Masking knows names of fields and shapes of tokens; a secret that has neither
// is not seen.
package audit
