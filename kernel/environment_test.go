package kernel

import (
	"testing"

	"cellblock/profiles"
)

// What a built-in policy passes to a worker loads no foreign code and gives no
// secret away.
func TestBuiltInPoliciesPassNoSecrets(t *testing.T) {
	for _, name := range profiles.List() {
		s, err := newSession(Options{SessionDir: t.TempDir(), Profile: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, variable := range []string{"LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PYTHONINSPECT", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "HOME", "PATH", "GITHUB_TOKEN"} {
			if s.policy.Env.Passes(variable) {
				t.Errorf("%s: %s passes", name, variable)
			}
		}
		for _, variable := range []string{"OMP_NUM_THREADS", "SSL_CERT_FILE", "NO_COLOR"} {
			if !s.policy.Env.Passes(variable) {
				t.Errorf("%s: %s does not pass", name, variable)
			}
		}
	}
}
