package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kind is what a node of a document is.
type kind uint8

const (
	textNode kind = iota
	numberNode
	boolNode
	nullNode
	listNode
	mapNode
)

var kindNames = [...]string{"text", "a number", "true or false", "nothing", "a list", "a mapping"}

// node is a value in a document and the line on which it begins. Both forms of
// documents come to the same nodes, so that everything above knows one.
type node struct {
	kind kind
	line int
	text string // of a scalar, as it was written
	list []*node
	keys []*node // of a mapping, in order
}

// Bounds of a document: what is longer or deeper was not written by a person.
const (
	MaxDocument = 1 << 20 // bytes
	maxDepth    = 64      // of nested lists and mappings, schemas included
)

// scan reads the text of a document, which is JSON when it begins with a brace
// and YAML otherwise.
func scan(file string, text []byte) (*node, error) {
	if len(text) > MaxDocument {
		return nil, &Error{File: file, Line: 1, What: fmt.Sprintf("%d bytes", len(text)), Do: fmt.Sprintf("keep a document within %d", MaxDocument)}
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		return scanJSON(file, text)
	}
	return scanYAML(file, text)
}

func scanYAML(file string, text []byte) (root *node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &Error{File: file, Line: 1, What: "empty", Do: "write version: 1 and the parts of a policy"}
		}
		return nil, yamlError(file, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, yamlError(file, err)
		}
		return nil, &Error{File: file, Line: max(more.Line, 1), What: "a second document", Do: "keep one document a file"}
	}
	if len(document.Content) != 1 {
		return nil, &Error{File: file, Line: 1, What: "empty", Do: "write version: 1 and the parts of a policy"}
	}
	return fromYAML(file, document.Content[0], 0)
}

// yamlError takes the line out of the library's text, which has no other place
// for it: "yaml: line 3: …".
func yamlError(file string, err error) error {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	var rest string
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, rest, _ = strings.Cut(text, ": ")
		text = rest
	}
	for _, wanted := range []string{"node content", "'-' indicator", "key", "',' or", "<document start>"} {
		if strings.HasPrefix(text, "did not find expected "+wanted) {
			line++ // its parser counts from 0, its scanner from 1
		}
	}
	return &Error{File: file, Line: max(line, 1), What: "not YAML: " + text, Do: "mend the syntax there or above"}
}

func fromYAML(file string, y *yaml.Node, depth int) (*node, error) {
	fail := func(what, do string) (*node, error) {
		return nil, &Error{File: file, Line: max(y.Line, 1), What: what, Do: do}
	}
	if depth > maxDepth {
		return fail("nested too deeply", fmt.Sprintf("use at most %d levels", maxDepth))
	}
	if y.Kind == yaml.AliasNode || y.Anchor != "" {
		return fail("an anchor or alias", "write the value out where it is used, so that a reader sees it there")
	}
	n := &node{line: max(y.Line, 1), text: y.Value}
	switch y.Kind {
	case yaml.ScalarNode:
		switch y.ShortTag() {
		case "!!str":
			n.kind = textNode
		case "!!int", "!!float":
			n.kind = numberNode
			// YAML has more ways to write a number than JSON, which schemas are in.
			var value any
			if err := y.Decode(&value); err != nil {
				return fail("number "+y.Value, "write it in decimal")
			}
			decimal, err := json.Marshal(value)
			if err != nil {
				return fail("number "+y.Value, "write a finite number in decimal")
			}
			n.text = string(decimal)
		case "!!bool":
			n.kind = boolNode
		case "!!null":
			n.kind = nullNode
		case "!!timestamp":
			n.kind = textNode // a date is as good a text as any
		default:
			return fail("tag "+y.Tag, "leave tags out")
		}
		if y.Style&yaml.TaggedStyle != 0 {
			return fail("tag "+y.Tag, "leave tags out")
		}
		return n, nil
	case yaml.SequenceNode:
		n.kind = listNode
	case yaml.MappingNode:
		n.kind = mapNode
	default:
		return fail("an unknown kind of value", "use text, numbers, lists and mappings")
	}
	if y.Style&yaml.TaggedStyle != 0 {
		return fail("tag "+y.Tag, "leave tags out")
	}
	for i, part := range y.Content {
		child, err := fromYAML(file, part, depth+1)
		if err != nil {
			return nil, err
		}
		if n.kind == mapNode && i%2 == 0 {
			if part.Kind != yaml.ScalarNode || part.ShortTag() == "!!merge" {
				return nil, &Error{File: file, Line: child.line, What: "a key that is no plain word", Do: "use a word as key"}
			}
			if err := n.addKey(file, child); err != nil {
				return nil, err
			}
			continue
		}
		n.list = append(n.list, child)
	}
	return n, nil
}

// addKey refuses a key that stands there already.
func (n *node) addKey(file string, key *node) error {
	for _, k := range n.keys {
		if k.text == key.text {
			return &Error{File: file, Line: key.line, What: fmt.Sprintf("key %q stands twice, first on line %d", key.text, k.line),
				Do: "keep one of them"}
		}
	}
	n.keys = append(n.keys, key)
	return nil
}

// scanJSON reads JSON token by token, for the lines.
func scanJSON(file string, text []byte) (*node, error) {
	s := &jsonScanner{file: file, text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	s.decoder.UseNumber()
	n, err := s.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := s.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, s.fail("something stands after the document", "keep one document a file")
	}
	return n, nil
}

type jsonScanner struct {
	file    string
	text    []byte
	decoder *json.Decoder
	seen    int64 // bytes whose lines were counted
	lines   int
}

// line is where the decoder stands. It counts on from the last time: a document
// is read in one pass.
func (s *jsonScanner) line() int {
	at := min(s.decoder.InputOffset(), int64(len(s.text)))
	s.lines += bytes.Count(s.text[s.seen:at], []byte("\n"))
	s.seen = at
	return s.lines + 1
}

func (s *jsonScanner) fail(what, do string) error {
	return &Error{File: s.file, Line: s.line(), What: what, Do: do}
}

func (s *jsonScanner) token() (json.Token, error) {
	t, err := s.decoder.Token()
	if err == nil {
		return t, nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(s.text[:min(max(syntax.Offset, 0), int64(len(s.text)))], []byte("\n"))
		return nil, &Error{File: s.file, Line: line, What: "not JSON: " + err.Error(), Do: "mend the syntax there or above"}
	}
	return nil, s.fail("not JSON: "+err.Error(), "mend the syntax there or above")
}

func (s *jsonScanner) value(depth int) (*node, error) {
	t, err := s.token()
	if err != nil {
		return nil, err
	}
	n := &node{line: s.line()}
	if depth > maxDepth {
		return nil, s.fail("nested too deeply", fmt.Sprintf("use at most %d levels", maxDepth))
	}
	switch v := t.(type) {
	case string:
		n.kind, n.text = textNode, v
	case json.Number:
		n.kind, n.text = numberNode, v.String()
	case bool:
		n.kind, n.text = boolNode, fmt.Sprint(v)
	case nil:
		n.kind = nullNode
	case json.Delim:
		n.kind = listNode
		if v == '{' {
			n.kind = mapNode
		}
		for s.decoder.More() {
			if n.kind == mapNode {
				key, err := s.token()
				if err != nil {
					return nil, err
				}
				name, _ := key.(string)
				if err := n.addKey(s.file, &node{line: s.line(), text: name}); err != nil {
					return nil, err
				}
			}
			child, err := s.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, child)
		}
		if _, err := s.token(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// plain is the node as encoding/json would have read it, for schemas.
func (n *node) plain() any {
	switch n.kind {
	case numberNode:
		return json.Number(n.text)
	case boolNode:
		return strings.EqualFold(n.text, "true")
	case nullNode:
		return nil
	case listNode:
		list := make([]any, len(n.list))
		for i, child := range n.list {
			list[i] = child.plain()
		}
		return list
	case mapNode:
		m := make(map[string]any, len(n.keys))
		for i, key := range n.keys {
			m[key.text] = n.list[i].plain()
		}
		return m
	}
	return n.text
}
