package kernel

import (
	"io/fs"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"cellblock/jail/stagebin"
)

// TestMain wants no goroutine left behind by any session; the one that lives as
// long as the launcher is the jail's.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("cellblock/jail/spawner.spawning"))
}

// needStage fails a test of the jail where the build has no stage: make build
// puts it there, and every make target that tests comes after it.
func needStage(t *testing.T) {
	t.Helper()
	stage, err := stagebin.Open()
	if err != nil {
		t.Fatal(err)
	}
	stage.Close()
}

func ownedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
