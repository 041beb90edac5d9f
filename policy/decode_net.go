package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

func (d *decoder) net(n *node, to *NetPart) {
	to.Line = n.line
	names, ports := map[string]bool{}, map[int]bool{}
	d.mapping(n, "net",
		field{"mode", true, word(d, "net.mode", &to.Mode, NetNone, NetHost, NetAllow)},
		field{"reason", false, d.text("net.reason", &to.Reason)},
		field{"allow", false, d.each("net.allow", func(n *node) {
			to.Allow = append(to.Allow, d.netRule(n, len(to.Allow)+1))
		})},
		field{"inbound", false, d.each("net.inbound", func(n *node) {
			r := InboundRule{Line: n.line}
			d.mapping(n, "a rule of net.inbound",
				field{"name", true, d.text("name", &r.Name)},
				field{"port", true, d.number("port", 65535, func(v int64) { r.Port = int(v) })},
				field{"reason", true, d.text("reason", &r.Reason)})
			switch {
			case d.err != nil:
			case !isID(r.Name):
				d.fail(n.line, fmt.Sprintf("name %q", r.Name), "use lower-case letters, digits, dots and dashes")
			case names[r.Name]:
				d.fail(n.line, fmt.Sprintf("inbound name %q stands twice", r.Name), "give each port a name of its own")
			case ports[r.Port]:
				d.fail(n.line, fmt.Sprintf("inbound port %d stands twice", r.Port), "keep one of them")
			}
			names[r.Name], ports[r.Port] = true, true
			to.Inbound = append(to.Inbound, r)
		})})
	switch {
	case d.err != nil:
	case to.Mode == NetAllow && len(to.Allow) == 0:
		d.fail(n.line, "net.mode allow without a list", "list hosts under allow, or use mode none")
	case to.Mode != NetAllow && len(to.Allow) > 0:
		d.fail(to.Allow[0].Line, fmt.Sprintf("net.allow does nothing in mode %s", to.Mode), "use mode allow, or leave the list out")
	case to.Mode == NetHost && len(to.Inbound) > 0:
		d.fail(to.Inbound[0].Line, "net.inbound does nothing in mode host, where every port is the host's", "use mode none or allow, or leave the list out")
	}
}

func (d *decoder) netRule(n *node, number int) NetRule {
	r := NetRule{Line: n.line}
	d.mapping(n, "a rule of net.allow",
		field{"id", false, d.text("id", &r.ID)},
		field{"host", true, func(n *node) {
			d.text("host", &r.Host)(n)
			if d.err != nil {
				return
			}
			host, err := parseHost(r.Host)
			if err != nil {
				d.fail(n.line, fmt.Sprintf("host %q", r.Host), err.Error())
				return
			}
			r.Host = host
		}},
		field{"port", true, func(n *node) {
			switch {
			case n.kind == textNode && n.text == "any":
			case n.kind == listNode && len(n.list) > 0:
				for _, part := range n.list {
					d.number("port", 65535, func(v int64) { r.Ports = append(r.Ports, int(v)) })(part)
				}
			case n.kind == numberNode:
				d.number("port", 65535, func(v int64) { r.Ports = Ports{int(v)} })(n)
			default:
				d.fail(n.line, "port is "+n.show(), "write a port, a list of ports, or any")
			}
		}},
		field{"reason", true, d.text("reason", &r.Reason)})
	if d.err == nil {
		r.ID = d.id(n, r.ID, fmt.Sprintf("net.%d", number))
	}
	return r
}

// parseHost returns the canonical form of what a rule may name.
func parseHost(text string) (string, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix != prefix.Masked() {
			return "", fmt.Errorf("has bits beyond its length: write %s", prefix.Masked())
		}
		if prefix.Addr().Is4In6() {
			return "", fmt.Errorf("is IPv4 written as IPv6: write the IPv4 network")
		}
		return prefix.String(), nil
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return "", fmt.Errorf("has a zone: leave it out")
		}
		return addr.Unmap().String(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	plain := name
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		plain = rest
	}
	switch {
	case strings.Contains(plain, "*"):
		return "", fmt.Errorf("has a * elsewhere than at the beginning: write *.example.com, or mode host for everything")
	case len(plain) > 253 || !isHostName(plain):
		return "", fmt.Errorf("is no host name, address or network: write a name in ASCII, without scheme, port and path")
	case numeric(plain):
		return "", fmt.Errorf("looks like an address in an old form: write it with four decimal numbers")
	}
	return name, nil
}

// numeric reports whether a name would be read as a number by resolvers that
// still know the old forms of addresses: its last label is one, in decimal,
// octal or hexadecimal (WHATWG URL, "ends in a number").
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
