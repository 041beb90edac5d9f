package stage

import (
	"strings"
	"syscall"
	"unsafe"

	"cellblock/jail/plan"
)

// backlog is how many connections wait for the launcher to accept them.
const backlog = 256

// socket makes a socket in the jail's network namespace and passes it on: a socket
// belongs to the namespace it was made in, whoever holds it.
func (s *stage) socket(st *plan.Step) error {
	object := st.Names[0] + " " + st.Path + " port " + utoa(st.Num)
	family, addr, ok := sockaddr(st.Data, uint16(st.Num))
	if !ok {
		return &callError{"socket", object, syscall.EINVAL}
	}
	kind := uintptr(syscall.SOCK_STREAM)
	if st.Names[0] == "udp" {
		kind = syscall.SOCK_DGRAM
	}
	fd, err := call("socket", object, syscall.SYS_SOCKET, family, kind|syscall.SOCK_CLOEXEC, 0, 0, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if family == syscall.AF_INET6 {
		// All addresses of IPv6 are not those of IPv4, which have a socket of their own.
		only := uint32(1)
		if _, err := call("setsockopt IPV6_V6ONLY", object, syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY,
			uintptr(unsafe.Pointer(&only)), unsafe.Sizeof(only)); err != nil {
			return err
		}
	}
	if _, err := call("bind", object, syscall.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&addr[0])), uintptr(len(addr)), 0, 0); err != nil {
		return err
	}
	if kind == syscall.SOCK_STREAM {
		if _, err := call("listen", object, syscall.SYS_LISTEN, uintptr(fd), backlog, 0, 0, 0); err != nil {
			return err
		}
	}
	return s.pass(plan.KindSocket, nil, fd)
}

// pass sends a message with a descriptor; the stage keeps its own.
func (s *stage) pass(kind plan.Kind, body []byte, fd int) error {
	if errno := inject("sendmsg"); errno != 0 {
		return &callError{"sendmsg", "launcher", errno}
	}
	if err := syscall.Sendmsg(controlFD, plan.AppendMessage(nil, kind, body), syscall.UnixRights(fd), nil, 0); err != nil {
		return &callError{"sendmsg", "launcher", err.(syscall.Errno)}
	}
	return nil
}

// loIndex is the number of lo in each network namespace (LOOPBACK_IFINDEX).
const loIndex = 1

// local adds a route of the type that addresses of interfaces have, by rtnetlink(7).
func (s *stage) local(st *plan.Step) error {
	const newRoute, createRoute = 24, syscall.NLM_F_REQUEST | syscall.NLM_F_ACK | syscall.NLM_F_CREATE | syscall.NLM_F_EXCL
	object := st.Path + "/" + utoa(st.Num)
	family, addr, ok := sockaddr(st.Data, 0)
	if !ok {
		return &callError{"netlink", object, syscall.EINVAL}
	}
	ip := addr[4:8]
	if family == syscall.AF_INET6 {
		ip = addr[8:24]
	}
	var m []byte
	u16 := func(v int) { m = append(m, byte(v), byte(v>>8)) }
	u32 := func(v int) { m = append(m, byte(v), byte(v>>8), byte(v>>16), byte(v>>24)) }
	total := 16 + 12 + 4 + len(ip) + 8
	u32(total) // struct nlmsghdr
	u16(newRoute)
	u16(createRoute)
	u32(1)
	u32(0)
	// struct rtmsg: of the table and type of local addresses, valid on this host.
	m = append(m, byte(family), byte(st.Num), 0, 0, syscall.RT_TABLE_LOCAL, syscall.RTPROT_STATIC, syscall.RT_SCOPE_HOST, syscall.RTN_LOCAL)
	u32(0)
	u16(4 + len(ip))
	u16(syscall.RTA_DST)
	m = append(m, ip...)
	u16(8)
	u16(syscall.RTA_OIF)
	u32(loIndex)

	fd, err := call("socket", "netlink", syscall.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE, 0, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if _, err := call("write", "netlink", syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), 0, 0); err != nil {
		return err
	}
	// struct nlmsghdr, and the error of struct nlmsgerr after it.
	reply := make([]byte, 1024)
	n, err := call("read", "netlink", syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&reply[0])), uintptr(len(reply)), 0, 0)
	if err != nil {
		return err
	}
	if n < 20 || reply[4] != syscall.NLMSG_ERROR || reply[5] != 0 {
		return &callError{"netlink", object, syscall.EBADMSG}
	}
	if code := int32(uint32(reply[16]) | uint32(reply[17])<<8 | uint32(reply[18])<<16 | uint32(reply[19])<<24); code != 0 {
		return &callError{"netlink", object, syscall.Errno(-code)}
	}
	return nil
}

// sockaddr makes a struct sockaddr_in or sockaddr_in6 of an address in hexadecimal.
func sockaddr(address string, port uint16) (family uintptr, addr []byte, ok bool) {
	ip := make([]byte, len(address)/2)
	for i := range ip {
		high, low := digit(address[2*i]), digit(address[2*i+1])
		if high > 15 || low > 15 {
			return 0, nil, false
		}
		ip[i] = high<<4 | low
	}
	switch len(ip) {
	case 4:
		family = syscall.AF_INET
		addr = make([]byte, syscall.SizeofSockaddrInet4)
		copy(addr[4:], ip)
	case 16:
		family = syscall.AF_INET6
		addr = make([]byte, syscall.SizeofSockaddrInet6)
		copy(addr[8:], ip)
	default:
		return 0, nil, false
	}
	addr[0], addr[2], addr[3] = byte(family), byte(port>>8), byte(port) // little-endian, as all our architectures
	return family, addr, true
}

func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// routes names the interfaces that a route of this namespace leads to; lo is always
// one of them. Interfaces that Linux puts into every new namespace (tunl0 and the
// like) are down, and no route leads there.
func routes() string {
	found := []string{"lo"}
	add := func(name string) {
		for _, f := range found {
			if f == name {
				return
			}
		}
		found = append(found, name)
	}
	four := readFile("/proc/thread-self/net/route")
	if four == "" {
		return "no list of routes"
	}
	for i, line := range strings.Split(four, "\n") {
		if words := strings.Fields(line); i > 0 && len(words) > 0 {
			add(words[0])
		}
	}
	for line := range strings.SplitSeq(readFile("/proc/thread-self/net/ipv6_route"), "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			add(words[len(words)-1])
		}
	}
	return strings.Join(found, " ")
}
