package wire

import (
	"bytes"
	"encoding/json"
	"math"
)

// Parse reads one line of a worker, without its newline.
func Parse(line []byte) (*Message, error) {
	s := &scanner{b: line}
	m := new(Message)
	var hasID, hasValue bool
	err := s.object("message", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "id":
			hasID = true
			m.ID, err = s.integer("id")
		case "op":
			var op string
			op, err = s.str("op", MaxName)
			m.Op = Op(op)
			if err == nil && m.Op != OpHost {
				err = broken(RuleUnknownOp, "%s", excerpt([]byte(op)))
			}
		case "name":
			m.Name, err = s.str("name", MaxName)
		case "scope":
			m.Scope, err = s.str("scope", MaxName)
		case "arguments":
			if s.peek() != '{' {
				return s.wrong("arguments", "an object")
			}
			m.Arguments, err = s.raw("arguments")
		case "value":
			hasValue = true
			m.Value, err = s.raw("value")
		case "info":
			m.Info, err = s.info()
		case "error":
			m.Error, err = s.workerError()
		default:
			err = broken(RuleUnknownField, "message: %s", excerpt(key))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	call := m.Op == OpHost
	switch {
	case !hasID || m.ID == 0:
		return nil, broken(RuleMissingField, "message: id")
	case call && (m.Name == "" || m.Arguments == nil):
		return nil, broken(RuleMissingField, "host: name and arguments")
	case call && (hasValue || m.Error != nil || m.Info != nil):
		return nil, broken(RuleUnknownField, "host: fields of a reply")
	case !call && (m.Name != "" || m.Arguments != nil || m.Scope != ""):
		return nil, broken(RuleUnknownField, "reply: fields of a host call")
	case !call && hasValue && m.Error != nil:
		return nil, broken(RuleValueAndError, "reply %d", m.ID)
	case !call && !hasValue && m.Error == nil:
		return nil, broken(RuleMissingField, "reply: value or error")
	}
	return m, nil
}

func (s *scanner) workerError() (*WorkerError, error) {
	e := new(WorkerError)
	err := s.object("error", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "type":
			e.Type, err = s.str("error type", MaxName)
		case "code":
			e.Code, err = s.str("error code", MaxName)
		case "message":
			e.Message, err = s.str("error message", MaxTraceback)
		case "fields":
			if s.peek() != '{' {
				return s.wrong("error fields", "an object")
			}
			var fields []byte
			fields, err = s.raw("error fields")
			e.Fields = bytes.Clone(fields) // the line's memory is used again
		default:
			err = broken(RuleUnknownField, "error: %s", excerpt(key))
		}
		return err
	})
	return e, err
}

func (s *scanner) info() (*Info, error) {
	i := new(Info)
	err := s.object("info", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "python":
			i.Python, err = s.str("python", MaxName)
		case "executable":
			i.Executable, err = s.str("executable", MaxName)
		case "pid":
			i.PID, err = s.integer("pid")
		case "skills":
			i.Skills, err = s.strs("skills", MaxNames, MaxName)
		case "skErrors":
			i.SkErrors, err = s.texts("skErrors", MaxNames, MaxTraceback)
		case "reload":
			i.Reload, err = s.texts("reload", MaxNames, MaxTraceback)
		default:
			err = broken(RuleUnknownField, "info: %s", excerpt(key))
		}
		return err
	})
	return i, err
}

func (s *scanner) strs(what string, count, limit int) ([]string, error) {
	var out []string
	err := s.array(what, count, func(int) error {
		v, err := s.str(what, limit)
		out = append(out, v)
		return err
	})
	return out, err
}

func (s *scanner) texts(what string, count, limit int) (map[string]string, error) {
	out := map[string]string{}
	err := s.object(what, count, func(key []byte) error {
		v, err := s.str(what, limit)
		out[string(key)] = v
		return err
	})
	return out, err
}

// ParseCell reads the value of a reply to run-block.
func ParseCell(value []byte) (*CellReply, error) {
	s := &scanner{b: value}
	c := new(CellReply)
	err := s.object("cell", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "status":
			c.Status, err = s.str("status", MaxName)
		case "value":
			c.Value, err = s.strOrNull("value", MaxFromWorker)
		case "shapeHint":
			c.ShapeHint, err = s.str("shapeHint", MaxName)
		case "error":
			c.Error, err = s.cellError()
		case "reprs":
			err = s.array("reprs", MaxReprs, func(int) error {
				m, err := s.texts("reprs", MaxMIME, MaxRich)
				c.Reprs = append(c.Reprs, m)
				return err
			})
		case "figures":
			c.Figures, err = s.strs("figures", MaxFigures, MaxRich)
		case "audit":
			err = s.array("audit", MaxAudit, func(int) error {
				raw, err := s.raw("audit")
				c.Audit = append(c.Audit, json.RawMessage(raw))
				return err
			})
		case "observed":
			err = s.array("observed", MaxObserved, func(int) error { return s.observed(c) })
		case "background":
			err = s.array("background", MaxBackground, func(int) error { return s.background(c) })
		case "forked":
			c.Forked, err = s.boolean("forked")
		case "yielded":
			c.Yielded, err = s.boolean("yielded")
		case "skErrors":
			c.SkErrors, err = s.texts("skErrors", MaxNames, MaxTraceback)
		case "notes":
			c.Notes, err = s.strs("notes", maxFields, MaxName)
		case "definitions":
			c.Definitions, err = s.definitions()
		case "durationMs":
			c.DurationMs, err = s.real("durationMs")
		default:
			err = broken(RuleUnknownField, "cell: %s", excerpt(key))
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && c.Status != "ok" && c.Status != "error" {
		err = broken(RuleWrongType, "status: %s", excerpt([]byte(c.Status)))
	}
	if err == nil && (c.Status == "error") != (c.Error != nil) {
		err = broken(RuleMissingField, "cell: status %s does not fit its error", c.Status)
	}
	return c, err
}

func (s *scanner) cellError() (*CellError, error) {
	e := new(CellError)
	err := s.object("error", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "ename":
			e.Name, err = s.str("ename", MaxName)
		case "evalue":
			e.Value, err = s.str("evalue", MaxTraceback)
		case "traceback":
			e.Traceback, err = s.str("traceback", 4*MaxTraceback)
		default:
			err = broken(RuleUnknownField, "error: %s", excerpt(key))
		}
		return err
	})
	return e, err
}

func (s *scanner) observed(c *CellReply) error {
	o := Observed{Count: 1}
	err := s.object("observed", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "op":
			o.Op, err = s.str("op", MaxName)
		case "path":
			o.Path, err = s.str("path", 4*MaxName)
		case "count":
			o.Count, err = s.integer("count")
		case "cell":
			o.Cell, err = s.integer("cell")
		case "line":
			o.Line, err = s.integer("line")
		default:
			err = broken(RuleUnknownField, "observed: %s", excerpt(key))
		}
		return err
	})
	o.Count = min(max(o.Count, 1), math.MaxInt32)
	c.Observed = append(c.Observed, o)
	return err
}

func (s *scanner) background(c *CellReply) error {
	var b Background
	err := s.object("background", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "origin":
			b.Origin, err = s.str("origin", MaxName)
		case "stream":
			b.Stream, err = s.str("stream", MaxName)
		case "text":
			b.Text, err = s.str("text", 4*MaxName)
		default:
			err = broken(RuleUnknownField, "background: %s", excerpt(key))
		}
		return err
	})
	if err == nil && b.Stream != "stdout" && b.Stream != "stderr" {
		err = broken(RuleWrongType, "background stream: %s", excerpt([]byte(b.Stream)))
	}
	c.Background = append(c.Background, b)
	return err
}
