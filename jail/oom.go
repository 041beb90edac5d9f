package jail

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// oomScore is a jail's oom_score_adj at least (proc_pid_oom_score_adj(5)): when the host
// runs out of memory, the jail goes before what serves it. A launcher that is to go earlier
// still, as those of some container platforms are, has jails that go with it.
const oomScore = 500

// oomScoreNow is that of a jail of this launcher.
func oomScoreNow() (int, error) {
	body, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		return 0, fmt.Errorf("/proc/self/oom_score_adj: %w", err)
	}
	return max(own, oomScore), nil
}

// raiseOOM gives a process the score of a jail, which its children inherit. Where this
// process has CAP_SYS_RESOURCE none of them can go below it.
func raiseOOM(pid int) error {
	score, err := oomScoreNow()
	if err != nil {
		return err
	}
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}
