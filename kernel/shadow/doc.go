// Package shadow keeps the layers of sessions in mode shadow: what a session has
// changed outside of its directory, beside the host's files, which stay as they
// are. It tells a layer's difference from the host, carries it over, or drops it.
//
//	layer, err := shadow.Open(dir, "20260101T120000.000-4711-1")
//	diff, err := layer.Diff()
//	for _, c := range diff.Changes {
//		fmt.Println(c)
//	}
//	done, err := layer.Commit(shadow.CommitOptions{Paths: []string{"/srv/data"}})
//
// A layer lies in a directory of the launcher's own that no session sees:
//
//	layer.json   what it belongs to, and which directories of the host it covers
//	lock         locked while its session lives, or while a command drops it
//	carried.json what commits have left on the host, and what one is about to do
//	0/upper …    overlayfs's upper layer of the first of them
//
// Everything below "upper" was made by a session and is not trusted: names, links,
// modes, kinds of files, and marks of overlayfs. Directories are walked by
// descriptors, beneath their root and through no symbolic link; nothing but regular
// files is opened; how many names are looked at is bounded.
//
// # Limitations
//
// Whether the host has changed a file underneath is told by its time of change
// (ctime, inode(7)), which nobody sets, compared with the layer's birth: a clock
// that was set back in between is not noticed, nor one of a file server that is
// behind this host's. overlayfs marks a copy with what it was made of, unless that
// had several names: such a file, removed from the host since, counts as new. A
// directory's time of change tells of each of its names, so that conflicts are told
// that are none.
//
// A file that was copied and then removed is told as renamed, where the bytes are the
// same, up to 64 MiB in size and as long as 256 MiB are enough to read for all of a
// layer's; the smallest are read first. The rest is told as created and deleted. For a
// commit that is the same, but for whose the file is: what a root's session created
// belongs to the owner of its session directory.
//
// A directory that has come to be in the place of one that a commit was about to make,
// in the moment in which that was killed, is taken for its own.
package shadow
