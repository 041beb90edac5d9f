package kernel

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestACutTextIsNeverLongerThanTheWhole(t *testing.T) {
	for _, limit := range []int{1, 10, 63, 64, 100, 1000, 12287, 12288, 20000} {
		for _, past := range []int{1, 2, 30, 100, 5000} {
			c := capped{limit: limit}
			whole := strings.Repeat("é", limit+past)
			for at := 0; at < len(whole); at += 14 {
				c.add([]byte(whole[at:min(at+14, len(whole))]))
			}
			if got := utf8.RuneCountInString(c.String()); got > limit+past {
				t.Errorf("limit %d: %d characters became %d", limit, limit+past, got)
			}
		}
	}
}
