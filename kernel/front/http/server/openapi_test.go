package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"cellblock/kernel/front/http/api"
)

var update = flag.Bool("update", false, "write openapi.json anew from the table of routes")

// schemas are the components of the document: the types that routes name.
type schemas map[string]*jsonschema.Schema

func (s schemas) ref(v any, strict bool) map[string]any {
	t := reflect.TypeOf(v)
	name := t.Name()
	if s[name] == nil {
		schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[json.RawMessage](): {}}})
		if err != nil {
			panic(err)
		}
		if !strict {
			grow(schema)
		}
		s[name] = schema
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

// grow lets answers have members that a client does not know yet.
func grow(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		grow(p)
	}
	grow(s.Items)
	grow(s.AdditionalProperties)
}

func content(kind string, schema any) map[string]any {
	return map[string]any{kind: map[string]any{"schema": schema}}
}

// problems are all statuses but its own that a route may answer.
func (r route) allProblems() []int {
	all := append(slices.Clone(everywhere), r.problems...)
	if !r.open {
		all = append(all, http.StatusUnauthorized)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// document makes openapi.json of the table of routes.
func document() ([]byte, schemas) {
	found := schemas{}
	paths := map[string]map[string]any{}
	for _, r := range routes() {
		op := map[string]any{"operationId": r.id, "summary": r.summary}
		if r.open {
			op["security"] = []any{map[string]any{}}
		}
		var parameters []any
		for _, p := range []struct{ name, of string }{{"id", "of the session"}, {"run", "of the run"}} {
			if strings.Contains(r.path, "{"+p.name+"}") {
				parameters = append(parameters, map[string]any{"name": p.name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}, "description": p.of})
			}
		}
		if parameters != nil {
			op["parameters"] = parameters
		}
		if r.body != nil {
			op["requestBody"] = map[string]any{"required": reflect.TypeOf(r.body) != reflect.TypeFor[api.Nothing]() && reflect.TypeOf(r.body) != reflect.TypeFor[api.Ask](), "content": content("application/json", found.ref(r.body, true))}
		}
		good := map[string]any{"description": http.StatusText(r.status)}
		switch {
		case r.answers != nil:
			c := content("application/json", found.ref(r.answers, false))
			if r.stream {
				c["text/event-stream"] = map[string]any{"schema": map[string]any{"type": "string"}}
				for _, data := range []any{api.Output{}, api.Question{}, api.Withdrawn{}} {
					found.ref(data, false)
				}
				good["description"] = `With "Accept: text/event-stream": events "output", each with an Output as its data, then one "result" with a Result. With "questions" the first is "started" with a Started, and between are "question" with a Question and "withdrawn" with a Withdrawn.`
			}
			good["content"] = c
		case r.plain != "":
			good["content"] = content(r.plain, map[string]any{})
		}
		answers := map[string]any{fmt.Sprint(r.status): good}
		for _, status := range r.allProblems() {
			answers[fmt.Sprint(status)] = map[string]any{"$ref": "#/components/responses/" + strings.ReplaceAll(http.StatusText(status), " ", "")}
		}
		op["responses"] = answers
		if paths[r.path] == nil {
			paths[r.path] = map[string]any{}
		}
		paths[r.path][strings.ToLower(r.method)] = op
	}
	responses := map[string]any{}
	for _, r := range routes() {
		for _, status := range r.allProblems() {
			answer := map[string]any{"description": http.StatusText(status), "content": content("application/json", found.ref(api.Failure{}, false))}
			if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
				answer["headers"] = map[string]any{"Retry-After": map[string]any{"schema": map[string]any{"type": "integer"}, "description": "seconds"}}
			}
			responses[strings.ReplaceAll(http.StatusText(status), " ", "")] = answer
		}
	}
	doc := map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{"title": "Cellblock", "version": "1",
			"description": "Sessions of Python in jails. On the Unix socket a caller is known by its user; on loopback by a token. A caller sees its own sessions only. Unknown fields of a body are refused."},
		"paths":    paths,
		"security": []any{map[string]any{"token": []any{}}},
		"components": map[string]any{"schemas": found, "responses": responses,
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer", "description": "On loopback; not asked for on the Unix socket."}}},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(doc); err != nil {
		panic(err)
	}
	return b.Bytes(), found
}

// TestDocument: what the server hands out is what its table says.
func TestDocument(t *testing.T) {
	made, _ := document()
	if *update {
		if err := os.WriteFile("openapi.json", made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(made, openAPI) {
		t.Error("openapi.json is not what the table of routes says; 'go test ./kernel/front/http/server -run Document -update' writes it anew")
	}
}
