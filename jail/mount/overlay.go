package mount

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Overlay says what to make a detached overlay of. The host's directory is its
// lower layer and is never written: overlayfs takes a read-only mount of its own
// of it, which does not even note the time of access.
type Overlay struct {
	// Lower is a directory of the host, and Layer one that holds "upper" and "work".
	Lower, Layer string
	// Attr are MOUNT_ATTR_* flags of the overlay.
	Attr uint64
	// Users id-maps both layers, so that an owner in the upper one is the owner
	// that the file would have on the host. nil for none.
	Users *os.File
}

// overlayOptions: a renamed directory is noted, not copied; a file whose mode
// changes is copied whole, so that the layer alone tells what is in it; and nothing
// is forced to the disk, since a layer that a crash of the host has torn is thrown
// away. Unmounting would otherwise write back all of the host's file system.
var overlayOptions = [][2]string{{"redirect_dir", "on"}, {"metacopy", "off"}, {"index", "off"}, {"volatile", ""}}

// Do makes the overlay. With Users set the error is ErrNotMappable, wrapped, where
// that is the cause. Needs Linux 6.15, which takes a detached mount as a layer.
func (o Overlay) Do() (int, error) {
	lower, err := Copy{Path: o.Lower, Attr: unix.MOUNT_ATTR_RDONLY, Users: o.Users}.Do()
	if err != nil {
		return -1, err
	}
	defer unix.Close(lower)
	layer, err := Copy{Path: o.Layer, NoLinks: true, Users: o.Users}.Do()
	if err != nil {
		return -1, err
	}
	defer unix.Close(layer)
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen overlay: %w", err)
	}
	defer unix.Close(fs)
	// Paths of descriptors, since a path of the host's may hold what separates
	// layers, and since the session can read the options in its mountinfo.
	at := func(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
	options := append([][2]string{{"source", "shadow"}}, overlayOptions...)
	options = append(options, [2]string{"lowerdir", at(lower)}, [2]string{"upperdir", at(layer) + "/upper"}, [2]string{"workdir", at(layer) + "/work"})
	for _, option := range options {
		if option[1] == "" {
			err = unix.FsconfigSetFlag(fs, option[0])
		} else {
			err = unix.FsconfigSetString(fs, option[0], option[1])
		}
		if err != nil {
			return -1, fmt.Errorf("overlay %s: option %s: %w", o.Lower, option[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlay %s: %w", o.Lower, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(o.Attr))
	if err != nil {
		return -1, fmt.Errorf("fsmount overlay %s: %w", o.Lower, err)
	}
	return fd, nil
}
