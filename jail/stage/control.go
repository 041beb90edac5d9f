package stage

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/jail/plan"
)

// The stage's descriptors, as the launcher laid them.
const (
	controlFD = 3
	wireFD    = 4
)

var errGone = errors.New("the launcher has gone")

// maxSlots bounds the mount trees that the launcher may hand over.
const maxSlots = 250 // SCM_MAX_FD is 253

// receivePlan reads the first message and the descriptors that came with it.
func receivePlan() (*plan.Plan, []int, error) {
	header := make([]byte, plan.HeaderSize)
	oob := make([]byte, unix.CmsgSpace(4*maxSlots))
	n, oobn, _, _, err := unix.Recvmsg(controlFD, header, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
	if err != nil {
		return nil, nil, err
	}
	if n != plan.HeaderSize {
		return nil, nil, errGone
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, nil, err
		}
		fds = append(fds, more...)
	}
	kind, size, err := plan.ParseHeader(header)
	if err != nil || kind != plan.KindPlan {
		return nil, nil, plan.ErrCorrupt
	}
	body := make([]byte, size)
	if err := readFull(body); err != nil {
		return nil, nil, err
	}
	p, err := plan.Decode(body)
	return p, fds, err
}

func readFull(b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Read(controlFD, b)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errGone
		}
		b = b[n:]
	}
	return nil
}

// awaitGo blocks until the launcher has compared the witness's report.
func awaitGo() error {
	header := make([]byte, plan.HeaderSize)
	if err := readFull(header); err != nil {
		return err
	}
	if kind, n, err := plan.ParseHeader(header); err != nil || kind != plan.KindGo || n != 0 {
		return plan.ErrCorrupt
	}
	return nil
}

func send(kind plan.Kind, body []byte, fds ...int) error {
	message := plan.AppendMessage(nil, kind, body)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(message) > 0 {
		n, err := unix.SendmsgN(controlFD, message, oob, nil, unix.MSG_NOSIGNAL)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		message, oob = message[n:], nil
	}
	return nil
}
