package config

import "testing"

// Two fields that read the same variable would each have a default of their
// own, and a change of one would change the other.
func TestVariables_HaveOneFieldEach(t *testing.T) {
	t.Parallel()
	fields := make(map[string]string)
	for _, v := range variables(new(Config)) {
		field := v.owner.String() + "." + v.field.Name
		if other, ok := fields[v.name]; ok {
			t.Errorf("%s is read by %s and by %s", v.name, other, field)
		}
		fields[v.name] = field
	}
	if len(fields) < 20 {
		t.Errorf("only %d variables found", len(fields))
	}
}
