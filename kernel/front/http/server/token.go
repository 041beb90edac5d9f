package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"cellblock/kernel/front/http/api"
)

// maxTokens bounds the file of tokens, in bytes; minToken is what takes too long to
// guess, in characters.
const (
	maxTokens = 64 << 10
	minToken  = 32
)

// tokens are what the owners of tokens are known by. Only sums are kept: what is
// compared has one length, and nothing that prints this tells a token.
type tokens []struct {
	name string
	sum  [sha256.Size]byte
}

var (
	tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	tokenText = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]+$`) // RFC 6750, 2.1
)

// readTokens reads a file of tokens: a line each, "NAME TOKEN" or a TOKEN that is named
// "default". The file must be its owner's alone. Errors never quote a token.
func readTokens(path string) (tokens, error) {
	fail := func(why string, args ...any) (tokens, error) {
		return nil, fmt.Errorf("token file %s: %w", path, fmt.Errorf(why, args...))
	}
	f, err := api.OpenTokens(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return fail("%w", err)
	}
	if int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
		return fail("belongs to user %d; it must belong to this server's (%d) or to root", stat.Uid, os.Geteuid())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokens+1))
	if err != nil {
		return fail("%w", err)
	}
	if len(text) > maxTokens {
		return fail("has more than %d bytes", maxTokens)
	}
	var found tokens
	seen := map[string]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
			continue
		case len(fields) == 1:
			fields = []string{"default", fields[0]}
		case len(fields) > 2:
			return fail("line %d: is neither TOKEN nor NAME TOKEN", i+1)
		}
		name, token := fields[0], fields[1]
		sum := sha256.Sum256([]byte(token))
		switch {
		case !tokenName.MatchString(name):
			return fail("line %d: the name is not of letters, digits and ._-", i+1)
		case len(token) < minToken || !tokenText.MatchString(token):
			return fail("line %d: a token is %d characters or more of letters, digits and ._~+/=-, such as 'head -c 32 /dev/urandom | base64' makes", i+1, minToken)
		case seen[name] || seen[string(sum[:])]:
			return fail("line %d: its name or its token stands above already", i+1)
		}
		seen[name], seen[string(sum[:])] = true, true
		found = append(found, struct {
			name string
			sum  [sha256.Size]byte
		}{name, sum})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("token file %s: %w", path, errors.New("has no token"))
	}
	return found, nil
}

// find says whose token it is. It takes as long for every one of a length, found or not.
func (t tokens) find(token string) (name string, known bool) {
	sum := sha256.Sum256([]byte(token))
	for i := range t {
		if subtle.ConstantTimeCompare(t[i].sum[:], sum[:]) == 1 {
			name, known = t[i].name, true
		}
	}
	return name, known
}
