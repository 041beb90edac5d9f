package audit

import (
	"regexp"
	"strings"
	"sync"
)

// Mask is one rule by which secrets are taken out of a record's texts.
type Mask struct {
	// Name stands in the place of the secret: [masked NAME].
	Name string
	// Hint is a text that is there when the pattern can match, so that the
	// pattern is not tried on every path.
	Hint string
	// Pattern is a regular expression. What its group "keep" matched stays.
	Pattern string
	Reason  string
}

// Masks are the rules of one log.
type Masks struct {
	// Fields are names whose values are secret, in facts and in texts such as
	// NAME=VALUE, NAME: VALUE and --NAME VALUE. Case and the difference of - and
	// _ do not count, and a longer name that ends in _FIELD is meant too.
	Fields []string
	// Tokens are the shapes of well-known secrets.
	Tokens []Mask
	// Values are secrets that are known as they are. Shorter ones than 6 bytes
	// are left alone: they would hide half of every text.
	Values []string

	once     sync.Once
	compiled []*regexp.Regexp
	plain    []string // the fields, as Secret compares them
	field    *regexp.Regexp
}

// DefaultMasks are the rules of a log that names none.
func DefaultMasks() *Masks {
	return &Masks{
		Fields: []string{"password", "passwd", "passphrase", "pwd", "secret", "token", "api_key", "apikey", "access_key",
			"secret_key", "private_key", "client_secret", "credential", "credentials", "authorization", "cookie"},
		Tokens: []Mask{
			{"url-password", "://", `(?P<keep>://[^\s/:@]*:)[^\s/@]+@`, "user:password before a host"},
			{"bearer", "earer ", `(?P<keep>[Bb]earer )[A-Za-z0-9._~+/=-]{8,}`, "an Authorization header"},
			{"basic", "asic ", `(?P<keep>[Bb]asic )[A-Za-z0-9+/=]{8,}`, "an Authorization header"},
			{"private-key", "PRIVATE KEY", `-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`, "a key in PEM"},
			{"jwt", "eyJ", `\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`, "a JSON web token"},
			{"aws-key", "AKIA", `\bAKIA[0-9A-Z]{16}\b`, "an access key of AWS"},
			{"aws-key", "ASIA", `\bASIA[0-9A-Z]{16}\b`, "a temporary access key of AWS"},
			{"github-token", "gh", `\bgh[pousr]_[A-Za-z0-9]{20,}`, "a token of GitHub"},
			{"github-token", "github_pat_", `\bgithub_pat_[A-Za-z0-9_]{20,}`, "a fine-grained token of GitHub"},
			{"gitlab-token", "glpat-", `\bglpat-[A-Za-z0-9_-]{16,}`, "a token of GitLab"},
			{"slack-token", "xox", `\bxox[a-z]-[A-Za-z0-9-]{10,}`, "a token of Slack"},
			{"google-key", "AIza", `\bAIza[A-Za-z0-9_-]{35}`, "an API key of Google"},
			{"google-token", "ya29.", `\bya29\.[A-Za-z0-9_-]{20,}`, "an OAuth token of Google"},
			{"stripe-key", "k_live_", `\b[rs]k_live_[A-Za-z0-9]{16,}`, "a live key of Stripe"},
			{"api-key", "sk-", `\bsk-[A-Za-z0-9_-]{20,}`, "an API key of a model's provider"},
			{"hub-token", "hf_", `\bhf_[A-Za-z0-9]{20,}`, "a token of a model hub"},
			{"registry-token", "npm_", `\bnpm_[A-Za-z0-9]{30,}`, "a token of npm"},
			{"registry-token", "pypi-", `\bpypi-[A-Za-z0-9_-]{40,}`, "a token of PyPI"},
		},
	}
}

func (m *Masks) compile() {
	m.once.Do(func() {
		for _, t := range m.Tokens {
			m.compiled = append(m.compiled, regexp.MustCompile(t.Pattern))
		}
		if len(m.Fields) == 0 {
			return
		}
		var names []string
		for _, f := range m.Fields {
			m.plain = append(m.plain, plain(f))
			names = append(names, strings.ReplaceAll(regexp.QuoteMeta(plain(f)), "_", "[-_ ]?"))
		}
		// NAME=VALUE, "NAME": VALUE, or --NAME VALUE.
		m.field = regexp.MustCompile(`(?i)(?P<keep>(?:\b|_)(?:[a-z0-9.]*[-_])?(?:` + strings.Join(names, "|") +
			`)["']?(?:\s*[=:]\s*)(?:Basic |Bearer )?|--(?:[a-z0-9]+-)*(?:` + strings.Join(names, "|") + `)\s+)` +
			`("[^"]*"|'[^']*'|[^\s"'&;,\[][^\s"'&;,]*)`)
	})
}

func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

// Secret reports whether a field of that name holds a secret.
func (m *Masks) Secret(name string) bool {
	m.compile()
	name = plain(name)
	for _, f := range m.plain {
		if name == f || len(name) > len(f) && strings.HasSuffix(name, f) && name[len(name)-len(f)-1] == '_' {
			return true
		}
	}
	return false
}

// Text returns s with every secret replaced.
func (m *Masks) Text(s string) string {
	if s == "" {
		return s
	}
	m.compile()
	for _, v := range m.Values {
		if len(v) >= 6 && strings.Contains(s, v) {
			s = strings.ReplaceAll(s, v, "[masked value]")
		}
	}
	for i, t := range m.Tokens {
		if !strings.Contains(s, t.Hint) {
			continue
		}
		with := "[masked " + t.Name + "]"
		if strings.Contains(t.Pattern, "(?P<keep>") {
			with = "${keep}" + with
		}
		s = m.compiled[i].ReplaceAllString(s, with)
	}
	if m.field != nil && (strings.ContainsAny(s, "=:") || strings.Contains(s, "--")) {
		s = m.field.ReplaceAllString(s, "${keep}[masked field]")
	}
	return s
}

// value masks the strings within a decoded JSON value.
func (m *Masks) value(v any) any {
	switch v := v.(type) {
	case string:
		return cut(m.Text(v), maxText)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.value(v[i])
			if i == 0 {
				continue
			}
			// An argument vector: --token, and its value in the next element.
			name, _ := v[i-1].(string)
			if option, ok := strings.CutPrefix(name, "--"); ok && m.Secret(option) {
				out[i] = "[masked field]"
			}
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			if m.Secret(name) && inner != nil && inner != "" {
				out[name] = "[masked field]"
			} else {
				out[name] = m.value(inner)
			}
		}
		return out
	}
	return v
}

// record returns r masked and cut to its bounds.
func (m *Masks) record(r Record) (Record, error) {
	r.Session, r.Scope = cut(r.Session, maxText), cut(r.Scope, maxText)
	r.Program = cut(m.Text(r.Program), maxText)
	r.Op = cut(m.Text(r.Op), maxText)
	r.Target = cut(m.Text(r.Target), maxTarget)
	r.Rule = cut(r.Rule, maxText)
	r.Reason = cut(m.Text(r.Reason), maxText)
	if len(r.Facts) > 0 {
		facts := any(r.Facts)
		if !simple(r.Facts) {
			var err error
			if facts, err = generic(r.Facts); err != nil {
				return r, err
			}
		}
		r.Facts = m.value(facts).(map[string]any)
	}
	return r, nil
}
