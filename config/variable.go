package config

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"
	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/internal/secret"
)

// variable is one setting: a field of a Config struct with a name in the
// environment.
type variable struct {
	name   string // with its prefix
	prefix string
	value  reflect.Value
	field  reflect.StructField
	owner  reflect.Type // the struct that has the field
}

// Read fills a struct of settings from the environment as [Load] does, for a verb
// with settings of its own: target is a pointer to a struct whose fields have env
// tags, or are groups with a tag that only has a prefix. A group with a method
// Validate is validated. The only error is an [*Error].
func Read(ctx context.Context, environment envconfig.Lookuper, target any) error {
	found := problems{variables: variables(target)}
	for _, v := range found.variables {
		found.add("", v.read(ctx, environment))
	}
	groups := reflect.ValueOf(target).Elem()
	for i := range groups.NumField() {
		tag := groups.Type().Field(i).Tag.Get("env")
		group, ok := reflect.TypeAssert[interface{ Validate() error }](groups.Field(i).Addr())
		if _, prefix, isGroup := strings.Cut(tag, ", prefix="); ok && isGroup {
			found.add(prefix, group.Validate())
		}
	}
	return found.error()
}

// variables lists the settings of a struct and of the structs in it, in the
// order of their fields. The rules are go-envconfig's: a struct without a name of
// its own is a group, whose prefix, if it has one, stands before the names in it.
func variables(config any) []variable {
	return appendVariables(nil, "", reflect.ValueOf(config).Elem())
}

func appendVariables(list []variable, prefix string, group reflect.Value) []variable {
	for i := range group.NumField() {
		field := group.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("env"), ",")
		switch {
		case name == "" && (field.Type.Kind() != reflect.Struct || !field.IsExported()):
			continue // not a setting
		case name == "":
			_, inner, _ := strings.Cut(options, "prefix=")
			list = appendVariables(list, prefix+inner, group.Field(i))
		default:
			list = append(list, variable{prefix + name, prefix, group.Field(i), field, group.Type()})
		}
	}
	return list
}

// read sets the field from the environment, or else to its default, also when
// the environment's value cannot be read: what is checked later should not fail
// because of it.
func (v variable) read(ctx context.Context, environment envconfig.Lookuper) error {
	if v.decode(ctx, notEmpty{environment}) == nil {
		return nil
	}
	if err := v.decode(ctx, envconfig.MapLookuper(nil)); err != nil {
		return fmt.Errorf("%s has a default that cannot be read: %w", v.name, err)
	}
	if v.secret() {
		return fmt.Errorf("%s cannot be read: want %s", v.name, v.kind())
	}
	seen, _ := environment.Lookup(v.name)
	return fmt.Errorf("%s is %q: want %s", v.name, seen, v.kind())
}

// decode reads the field alone, because go-envconfig stops at the first error of
// a struct.
func (v variable) decode(ctx context.Context, environment envconfig.Lookuper) error {
	alone := reflect.New(reflect.StructOf([]reflect.StructField{
		{Name: v.field.Name, Type: v.field.Type, Tag: v.field.Tag},
	}))
	err := envconfig.ProcessWith(ctx, &envconfig.Config{
		Target:   alone.Interface(),
		Lookuper: envconfig.PrefixLookuper(v.prefix, environment),
	})
	if err == nil {
		v.value.Set(alone.Elem().Field(0))
	}
	return err
}

func (v variable) secret() bool { return v.field.Type == reflect.TypeFor[secret.Text]() }

// fallback is the default in the field's tag.
func (v variable) fallback() string {
	_, fallback, _ := strings.Cut(v.field.Tag.Get("env"), "default=")
	return fallback
}

// kind says what the variable's value looks like.
func (v variable) kind() string {
	switch v.field.Type {
	case reflect.TypeFor[time.Duration]():
		return "a duration such as 500ms, 10s or 5m"
	case reflect.TypeFor[secret.Text]():
		return "text, secret"
	case reflect.TypeFor[zapcore.Level]():
		return "debug, info, warn or error"
	}
	switch v.field.Type.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Map:
		return "a list with commas"
	}
	return "text"
}

// notEmpty takes an empty variable for one that is not set, as people mean it
// who write NAME= or NAME=${OTHER} in an env file.
type notEmpty struct{ environment envconfig.Lookuper }

// Lookup implements envconfig.Lookuper.
func (l notEmpty) Lookup(name string) (string, bool) {
	value, ok := l.environment.Lookup(name)
	return value, ok && value != ""
}
