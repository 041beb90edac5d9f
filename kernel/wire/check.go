package wire

// CheckValue reports what keeps text from being JSON that a worker takes: strict, no
// key twice, nested no deeper than MaxDepth.
func CheckValue(text []byte) error {
	s := &scanner{b: text, wide: true}
	if err := s.skip("value"); err != nil {
		return err
	}
	return s.end()
}
