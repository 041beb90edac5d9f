package wire

import "fmt"

// Rule names the rule of the wire that a message broke.
type Rule string

// The rules, in the words of PROTOCOL.md.
const (
	RuleLineTooLong    Rule = "line-too-long"
	RuleTruncatedLine  Rule = "truncated-line"
	RuleNotJSON        Rule = "not-json"
	RuleNotText        Rule = "not-text" // not UTF-8, or half a surrogate pair
	RuleTooDeep        Rule = "too-deep"
	RuleTooMany        Rule = "too-many"
	RuleTooLong        Rule = "too-long"
	RuleUnknownField   Rule = "unknown-field"
	RuleDuplicateField Rule = "duplicate-field"
	RuleMissingField   Rule = "missing-field"
	RuleWrongType      Rule = "wrong-type"
	RuleUnknownOp      Rule = "unknown-op"
	RuleUnknownReply   Rule = "unknown-reply" // an id nobody waits for
	RuleDuplicateID    Rule = "duplicate-id"  // a request's number that does not go up
	RuleValueAndError  Rule = "value-and-error"
)

// Rules lists every rule, for the test that compares them with PROTOCOL.md.
func Rules() []Rule {
	return []Rule{RuleLineTooLong, RuleTruncatedLine, RuleNotJSON, RuleNotText, RuleTooDeep,
		RuleTooMany, RuleTooLong, RuleUnknownField, RuleDuplicateField, RuleMissingField,
		RuleWrongType, RuleUnknownOp, RuleUnknownReply, RuleDuplicateID, RuleValueAndError}
}

// ProtocolError is a message of the worker that is not in the protocol. Detail
// never holds more than a short excerpt of what was sent.
type ProtocolError struct {
	Rule   Rule
	Detail string
}

func (e *ProtocolError) Error() string {
	if e.Detail == "" {
		return string(e.Rule)
	}
	return string(e.Rule) + ": " + e.Detail
}

func broken(r Rule, format string, args ...any) error {
	return &ProtocolError{Rule: r, Detail: fmt.Sprintf(format, args...)}
}

// excerpt quotes at most 40 bytes of what a worker sent.
func excerpt(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%q…", b[:40])
	}
	return fmt.Sprintf("%q", b)
}
