package audit

import (
	"os"
	"strings"
	"testing"
)

func TestSecretsAreMaskedByRule(t *testing.T) {
	m := DefaultMasks()
	m.Values = []string{"canary-of-this-host", "short"}
	for _, c := range []struct{ text, secret, kept string }{
		{"https://bob:hunter2x@example.org/x", "hunter2x", "example.org/x"},
		{"git clone https://x-access-token:ghp_abcdefghijklmnopqrstuvwxyz0123456789@host/r", "ghp_", "git clone"},
		{"curl -H 'Authorization: Bearer abcdef0123456789'", "abcdef0123456789", "curl -H"},
		{"mysql --password hunter2x --user me", "hunter2x", "--user me"},
		{"mysql --password=hunter2x --user me", "hunter2x", "--user me"},
		{"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI", "AWS_SECRET_ACCESS_KEY"},
		{"key AKIAIOSFODNN7EXAMPLE in a path", "AKIAIOSFODNN7EXAMPLE", "in a path"},
		{`{"api-key": "abc def", "n": 1}`, "abc def", `"n": 1`},
		{"https://h/?token=abc123&x=1", "abc123", "x=1"},
		{"a eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl b", "c2lnbmF0dXJl", "a "},
		{"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----", "MIIEow", ""},
		{"/tmp/canary-of-this-host/x", "canary-of-this-host", "/tmp/"},
		{"sk-proj-abcdefghijklmnopqrstuv", "abcdefghijklmnop", ""},
	} {
		got := m.Text(c.text)
		if strings.Contains(got, c.secret) || !strings.Contains(got, c.kept) || !strings.Contains(got, "[masked ") {
			t.Errorf("%q became %q", c.text, got)
		}
	}
	for _, plain := range []string{"", "/etc/hosts", "/home/me/short/secretary=no", "x = 1", "--token-file /etc/t"} {
		if got := m.Text(plain); got != plain && plain != "/home/me/short/secretary=no" {
			t.Errorf("%q became %q", plain, got)
		}
	}
	for name, secret := range map[string]bool{"password": true, "GITHUB_TOKEN": true, "api-key": true, "Set-Cookie": true,
		"tokens": false, "path": false, "secretary": false, "compass": false} {
		if m.Secret(name) != secret {
			t.Errorf("field %q: %v", name, !secret)
		}
	}
}

func TestNoSecretReachesTheFile(t *testing.T) {
	const canary = "c4n4ry-9f8e7d6c5b4a"
	l := newLog(t, Options{Masks: &Masks{Fields: DefaultMasks().Fields, Tokens: DefaultMasks().Tokens, Values: []string{canary}}})
	type typed struct {
		Prompt string `json:"prompt"`
		Token  string `json:"token"`
	}
	must(t, l.Append(
		Record{Op: "exec", Source: SourceOS, Program: "/bin/" + canary, Target: "/x/" + canary, Reason: "because " + canary},
		Record{Op: "exec", Source: SourceOS, Facts: map[string]any{
			"argv": []string{"login", "--token", "t0ps3cret-1"}, "one": "--token t0ps3cret-2",
			"env":   map[string]string{"MY_PASSWORD": "t0ps3cret-3", "HOME": "/root"},
			"typed": typed{"Password: ", "t0ps3cret-4"}, "deep": []any{map[string]any{"secret": map[string]any{"x": "t0ps3cret-5"}}},
		}}))
	must(t, l.Close())
	data, err := os.ReadFile(l.Path())
	must(t, err)
	for _, secret := range []string{canary, "t0ps3cret-2", "t0ps3cret-3", "t0ps3cret-4", "t0ps3cret-5", "t0ps3cret-1"} {
		if strings.Contains(string(data), secret) {
			t.Errorf("%s stands in the log:\n%s", secret, data)
		}
	}
	if !strings.Contains(string(data), "/root") || !strings.Contains(string(data), "login") {
		t.Errorf("what is no secret went as well:\n%s", data)
	}
}
