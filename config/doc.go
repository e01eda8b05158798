// Package config reads the settings of the relay from the environment, which is
// their only source.
//
// Each package describes its own settings in a Config struct; this package joins
// them under the prefixes RELAY_ and INFRAI_, adds what the whole process needs,
// and checks everything at once. An [Error] lists every problem with the name of
// the variable, the value seen and the value wanted. Secrets are never part of
// it, not even of a connection string that cannot be parsed.
//
// A variable that is set but empty counts as not set. docs/configuration.md is
// generated from the structs' tags and comments.
package config
