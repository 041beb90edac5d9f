// Package shadow keeps the layers of sessions in mode shadow: what a session has
// changed outside of its directory, beside the host's files, which stay as they
// are. It tells a layer's difference from the host, or drops it.
//
//	layer, err := shadow.Open(dir, "20260101T120000.000-4711-1")
//	diff, err := layer.Diff()
//	for _, c := range diff.Changes {
//		fmt.Println(c)
//	}
//
// A layer lies in a directory of the launcher's own that no session sees:
//
//	layer.json   what it belongs to, and which directories of the host it covers
//	lock         locked while its session lives, or while a command drops it
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
// that was set back in between is not noticed.
package shadow
