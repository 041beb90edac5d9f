package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Approval is the question whether one call may be carried out. The answer holds
// for that call alone, once, and until Expires.
type Approval struct {
	ID     string
	Call   Call
	Action json.RawMessage // that the tool declared; empty for none
	// Digest is of the tool, the arguments and the action, in hexadecimal: what is
	// approved, whatever is shown of it.
	Digest  string
	Reason  string // of the policy's rule that wants a confirmation
	Expires time.Time
}

// Digest names a call by what it will do.
func Digest(tool string, arguments, action json.RawMessage) string {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(tool), arguments, action} {
		_ = binary.Write(sum, binary.BigEndian, int64(len(part))) // a hash takes every write
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// confirm has a call approved and returns the approval's id. Whoever approves gets
// copies: what is carried out is what was asked about.
func (d *Door) confirm(ctx context.Context, c Call, g Grant, approve func(context.Context, Approval) (bool, error)) (string, *refusal) {
	const rule = "host.approval"
	if approve == nil {
		return "", &refusal{CodeNoAnswer, rule, fmt.Sprintf("it needs an approval, and nobody is there to give one: %s (%s)", g.Reason, g.Rule)}
	}
	expires := time.Now().Add(d.config.ApprovalTime)
	ctx, cancel := context.WithDeadline(ctx, expires)
	defer cancel()
	shown := c
	shown.Arguments, shown.Chain = slices.Clone(c.Arguments), slices.Clone(c.Chain)
	a := Approval{ID: "a-" + c.ID, Call: shown, Action: slices.Clone(g.Action), Digest: Digest(c.Tool, c.Arguments, g.Action), Reason: g.Reason, Expires: expires}
	type answer struct {
		approved bool
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		got := answer{err: errors.New("who was asked broke off")}
		defer func() {
			if p := recover(); p != nil {
				got = answer{err: fmt.Errorf("who was asked broke off: %v", p)}
			}
			answers <- got
		}()
		got.approved, got.err = approve(ctx, a)
	}()
	select {
	case <-ctx.Done():
		if time.Now().Before(expires) {
			return "", &refusal{CodeCancelled, rule, "it was cancelled before it was approved"}
		}
		return "", &refusal{CodeNoAnswer, rule, fmt.Sprintf("it was not approved within %s", d.config.ApprovalTime)}
	case got := <-answers:
		switch {
		case got.err != nil:
			return "", &refusal{CodeNoAnswer, rule, "it could not be approved: " + got.err.Error()}
		case !got.approved:
			return "", &refusal{CodeDenied, rule, "it was not approved"}
		case !time.Now().Before(expires):
			return "", &refusal{CodeNoAnswer, rule, fmt.Sprintf("it was not approved within %s", d.config.ApprovalTime)}
		}
		return a.ID, nil
	}
}
