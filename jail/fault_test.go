package jail

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// Each system call of the stage's set-up fails in turn, and each time the start
// must end with an error, before any foreign code has run. The stage of this
// test is built with a tag that lets call number STAGE_FAULT fail.
func TestEachCallOfTheSetUpFailing(t *testing.T) {
	image := os.Getenv("JAIL_TEST_FAULT_STAGE")
	if image == "" {
		image = filepath.Join(t.TempDir(), "stage")
		build := exec.Command("go", "build", "-tags", "stagefault", "-o", image, "cellblock/cmd/cellblock-stage")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building the stage: %v\n%s", err, out)
		}
	}
	body, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	useStage(t, body)
	for _, tree := range []TreeAccess{TreeReadOnly, TreeWritable} {
		t.Run(string(tree), func(t *testing.T) {
			spec := testSpec(t, tree, "/bin/sh", "-c", "echo ran > ran")
			spec.Local = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
			spec.Sockets = socketsOf("tcp 127.0.0.1:80", "udp [::1]:53")
			p, err := Compile(spec, Probe())
			if err != nil {
				t.Fatal(err)
			}
			// Only the word that the worker is born comes after its birth.
			const afterBirth = 1
			var failed int
			var ranAt []int
			for n := 0; ; n++ {
				if n > 2000 {
					t.Fatal("the set-up does not end")
				}
				process, err := Start(context.Background(), p, StartOptions{stageEnv: []string{"STAGE_FAULT=" + strconv.Itoa(n)}})
				if err == nil {
					process.Wait()
					break
				}
				failed++
				var step *StepError
				var missing *MissingFeatureError
				if !errors.As(err, &step) && !errors.As(err, &missing) && !errors.Is(err, ErrStageGone) && n > 10 {
					t.Errorf("call %d: %v, which names no step", n, err)
				}
				if _, err := os.Stat(filepath.Join(spec.Dir, "ran")); err == nil {
					ranAt = append(ranAt, n)
					os.Remove(filepath.Join(spec.Dir, "ran"))
				}
			}
			if failed < 100 {
				t.Errorf("only %d calls failed: the choke point is not used", failed)
			}
			for _, n := range ranAt {
				if n < failed-afterBirth {
					t.Errorf("call %d of %d failed, and the worker ran", n, failed)
				}
			}
			t.Logf("%d calls failed in turn, %d of them after the worker's birth", failed, len(ranAt))
		})
	}
}

// useStage replaces the embedded stage for one test.
func useStage(t *testing.T, body []byte) {
	t.Helper()
	before := openStage
	imageMu.Lock()
	old := imageFile
	imageFile, openStage = nil, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	imageMu.Unlock()
	t.Cleanup(func() {
		imageMu.Lock()
		imageFile.Close()
		imageFile, openStage = old, before
		imageMu.Unlock()
	})
}
