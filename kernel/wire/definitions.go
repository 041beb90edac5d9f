package wire

import "slices"

// DefinitionKinds are the kinds of statements that are reported as definitions.
func DefinitionKinds() []string { return []string{"function", "class", "import", "constant"} }

func (s *scanner) definitions() (*Definitions, error) {
	d := new(Definitions)
	err := s.object("definitions", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "kept":
			err = s.array("kept", MaxKept, func(int) error {
				one, err := s.definition()
				d.Kept = append(d.Kept, one)
				return err
			})
		case "others":
			d.Others, err = s.strs("others", MaxNames, MaxName)
		default:
			err = broken(RuleUnknownField, "definitions: %s", excerpt(key))
		}
		return err
	})
	return d, err
}

func (s *scanner) definition() (Definition, error) {
	var d Definition
	err := s.object("definition", maxFields, func(key []byte) (err error) {
		switch string(key) {
		case "cell":
			d.Cell, err = s.integer("cell")
		case "start":
			d.Start, err = s.integer("start")
		case "end":
			d.End, err = s.integer("end")
		case "kind":
			d.Kind, err = s.str("kind", MaxName)
		case "names":
			d.Names, err = s.strs("names", MaxNames, MaxName)
		default:
			err = broken(RuleUnknownField, "definition: %s", excerpt(key))
		}
		return err
	})
	if err == nil && !slices.Contains(DefinitionKinds(), d.Kind) {
		err = broken(RuleWrongType, "definition kind: %s", excerpt([]byte(d.Kind)))
	}
	if err == nil && (d.Start < 0 || d.End <= d.Start) {
		err = broken(RuleWrongType, "definition: bytes %d to %d", d.Start, d.End)
	}
	return d, err
}
