// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
)

// redacted is what stands in the place of what is redacted in a text.
const redacted = "[redacted]"

// credentialWords are what the names of credentials have in them.
const credentialWords = `(?:pass(?:word|wd|phrase)|pwd|secret|token|credential|authorization|signature|` +
	`(?:api|access|account|private|secret|signing|encryption|shared|client|ssh|auth)[_ -]?key)`

// credentialHints are in small letters what credentialWords begin or end with.
var credentialHints = []string{"pass", "pwd", "secret", "token", "credential", "auth", "sig", "key"}

const (
	// escaped is a value in the quotes of a text in quotes, and enclosed one in any quotes, or in brackets. What was cut has no end.
	escaped  = `\\"(?:[^"\\\n]|\\[^"\\\n]|\\\\+.)*(?:\\")?|\\\\+"[^"\n]*"?`
	enclosed = escaped + `|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\[[^\]\n]*\]?|\{[^}\n]*\}?`
	// value is one that may be a word as well, or a block of YAML in a text in quotes.
	value = `(?:` + enclosed + `|[|>][-+0-9]*\\+n[^"\n]*|(?:(?:basic|bearer|digest|negotiate)[ \t]+)?[^\s"'&;]+)`
	// credentialed is the name of a credential, and name what is between it and its value as well, also as URLs and JSON have it.
	credentialed = `[\w.-]*` + credentialWords + `[\w.-]*`
	name         = `(?:` + credentialWords + `[\w.-]*|(?:\b|_|%26|%3f|u0026)(?:sig|auth|pass))(?:["'\]\\]|u0022|%(?:25)?22)*[ \t]*`
	// is is between a name and its value.
	is = `(?::=|=>|[:=]|\\+u003[ad]|%(?:25)?3[ad])`
	// flag is one whose value is a credential.
	flag = `(?:^|[\s"'=,(\[])--?` + credentialed
	// quotes may be around what a field is called, and field is between it and its value. next is between two fields.
	quotes = `["'\\]*`
	field  = quotes + `[ \t]*[:=][ \t]*`
	next   = quotes + `(?:[\s,]|\\{1,4}n)+` + quotes
	// item is the value of a field among others, and userinfo one with a password after a colon.
	item     = `(?:` + enclosed + `|[^\s,}"']+)`
	userinfo = `(?:\\+"[^":\n]*:[^"\n]+"?|"[^":\n]*:[^"\n]+"?|'[^':\n]*:[^'\n]+'?|[^\s"':]+:[^\s"'/][^\s"']*)`
	// encoded is base64 of PEM, wherever that begins, or of access to a cluster or a registry.
	encoded = `(?:[A-Za-z0-9+/_-]*(?:LS0tLS1CRUdJTi|LS0tQkVHSU4g|LS0tLUJFR0lO)|` +
		`\b(?:YXBpVmVyc2lvbj|a2luZDog|eyJhcGlWZXJzaW9uI|eyJraW5kI|eyJhdXRocyI6|ewogICJhdXRocyI6|ewoJImF1dGhzIj))[A-Za-z0-9+/_-]*={0,2}`
)

var encodedHints = []string{"ls0t", "yxbpvmvyc2lvbj", "a2luzdog", "eyjh", "eyjr", "ewog", "ewoj"}

// credentials are what looks like one, after and before what stays of it, in lines that have one of some words in small letters. A
// cookie goes on to the end of its line, and so does how one is authorized: each scheme has its own parts.
var credentials = []struct {
	hints   []string
	pattern *regexp.Regexp
}{
	{encodedHints, regexp.MustCompile(`()` + encoded)},
	{[]string{"eyj"}, regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`)},
	{[]string{"."}, regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)},
	{
		[]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "ya29.", "ltai", "gaaaaa", "hvs."},
		regexp.MustCompile(`()\b(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|` +
			`AIza[\w-]{30,}|ya29\.[\w-]{10,}|LTAI[A-Za-z0-9]{12,}|gAAAAA[\w-]{20,}={0,2}|hvs\.[\w-]{20,})`),
	},
	{[]string{"cookie"}, regexp.MustCompile(`(?i)(\bcookie["'\]\\]*[ \t]*[:=][ \t]*).+`)},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)(authorization["'\]\\]*[ \t]*[:=][ \t]*)(?:` + enclosed + `|.+)`)},
	{credentialHints, regexp.MustCompile(`(?i)(` + name + is + `(?:[ \t]|\\{1,4}n)*)` + value)},
	{credentialHints, regexp.MustCompile(`(?i)(` + flag + `(?:\\*["']?,?[ \t]+|\\*["'],))` +
		`(?:\[redacted\]|\\+"[^"\\\n-][^"\n]*"?|"[^"\\\n-](?:[^"\\\n]|\\.)*"?|'[^'\n-][^'\n]*'?|[^\s"'&;\\-][^\s"'&;]*)`)},
	{[]string{"valuefrom:"}, regexp.MustCompile(`(?i)(\bname:` + credentialed + `[, ]value:).*?([, ]valuefrom:)`)},
	{[]string{"value"}, regexp.MustCompile(`(?i)(\bname` + field + quotes + credentialed + next + `value` + field + `)` + item)},
	{[]string{"value"}, regexp.MustCompile(`(?i)(\bvalue` + field + `)` + item + `(` + next + `name` + field + quotes + credentialed + `)`)},
	{[]string{"bearer "}, regexp.MustCompile(`(?i)(\bbearer +)[A-Za-z0-9._~+/=-]{16,}`)},
	{[]string{"curl", "ctr"}, regexp.MustCompile(`(\b(?:curl|ctr)\b[^;|\n]*?\s(?:-[uU][ \t]*|--(?:proxy-)?user[ \t=]+))` + userinfo)},
	{[]string{"creds"}, regexp.MustCompile(`(--(?:[a-z]+-)?creds[ \t=]+)` + userinfo)},
	{[]string{"mysql", "mariadb"}, regexp.MustCompile(`(\b(?:mysql|mariadb)[\w-]*\b[^;|\n]*?\s-p)[^\s"'&;=-][^\s"'&;]*`)},
	{[]string{"sshpass", "login"}, regexp.MustCompile(`(\b(?:sshpass|(?:docker|podman|nerdctl|helm|oras|crane|skopeo)\b[^;|\n]*?\blogin)\b[^;|\n]*?\s-p[ \t]*)[^\s&;-][^\s&;]*`)},
	// What are only digits before a / is a port.
	{[]string{"://"}, regexp.MustCompile(`(://)[^\s/:"\\]*:(?:[0-9]*[^\s/0-9"\\][^\s"\\]*|[0-9]+)(@)`)},
}

func hasAny(small []byte, hints []string) bool {
	return slices.ContainsFunc(hints, func(hint string) bool { return bytes.Contains(small, []byte(hint)) })
}

// scrub returns a text without what looks like a credential, and how many there were.
func scrub(data []byte) ([]byte, int) { return scrubFrom(data, 0) }

// scrubFrom is scrub for the lines of a text that begin at some byte. Those before it tell what these are, and are not returned.
func scrubFrom(data []byte, from int) ([]byte, int) {
	data, from, found := scrubKeys(data, from)
	var (
		scrubbed, small []byte
		rest            rest
		// left is how many bytes may still belong to what was begun, and read how many were read.
		left, read int
		// The line with a value that may be that of a name in one of the next lines, and how many of these there are.
		valueAt, valueEnd, near int
	)
	for line := range bytes.Lines(data) {
		read += len(line)
		left -= len(line)
		near--
		gone := false
		if rest != nil && left >= 0 {
			gone, rest = rest(line[len(before.Find(line)):])
		} else {
			rest = nil
		}
		if gone {
			if read > from {
				scrubbed = append(append(scrubbed, redacted...), line[len(bytes.TrimRight(line, "\r\n")):]...)
				found++
			}
			continue
		}
		small = append(small[:0], line...)
		lower(small)
		if begun, named := begins(line, small); begun != nil {
			rest, left = begun, maxKey
			if named && near >= 0 && valueAt < valueEnd {
				scrubbed = slices.Replace(scrubbed, valueAt, valueEnd, []byte(redacted+"\n")...)
				valueEnd = 0
				found++
			}
		}
		if read <= from {
			continue
		}
		at := len(scrubbed)
		scrubbed = scrubLine(scrubbed, line, small, &found)
		if bytes.Contains(small, []byte("value")) && fieldValue.Match(line[len(before.Find(line)):]) {
			valueAt, valueEnd, near = at, len(scrubbed), maxFields
		}
	}
	return scrubbed, found
}

// lower has letters be small. What is no ASCII stays, so that what is found is where it is in the line.
func lower(text []byte) {
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			text[i] = c + 'a' - 'A'
		}
	}
}

// scrubLine appends a line without what looks like a credential.
func scrubLine(to, line, small []byte, found *int) []byte {
	for _, credential := range credentials {
		if !hasAny(small, credential.hints) {
			continue
		}
		matches := credential.pattern.FindAllSubmatchIndex(line, -1)
		if matches == nil {
			continue
		}
		var scrubbed []byte
		last := 0
		for _, match := range matches {
			begin, end := match[3], match[1]
			if len(match) > 4 {
				end = match[4]
			}
			if begin == end || string(line[begin:end]) == redacted {
				continue
			}
			scrubbed = append(append(scrubbed, line[last:begin]...), redacted...)
			last = end
			*found++
		}
		line = append(scrubbed, line[last:]...)
	}
	return append(to, line...)
}

// rest says of a line whether it belongs to the credential that a line before it has begun, and what then says it of the next one.
type rest func(line []byte) (bool, rest)

// maxFields is how many lines there are at most between a name and its value.
const maxFields = 3

var (
	// before is what a log has before each line.
	before = regexp.MustCompile(`^(?:(?:\[ *)?[0-9][0-9T:.,+Z-]*\]? (?:std(?:out|err) [FP] )?|[A-Z][a-z][a-z] [ 0-9][0-9] [0-9:]{8} [^ ]+ [^ :]+: )`)

	valueLater   = regexp.MustCompile(`(?i)` + name + is + `[ \t]*([|>][-+0-9]*)?\s*$`)
	flagged      = regexp.MustCompile(`(?i)` + flag + `$`)
	encodedLater = regexp.MustCompile(encoded + `$`)
	encodedLine  = regexp.MustCompile(`^\s*[A-Za-z0-9+/_-]+={0,2}["',\\]*\s*$`)
	mapping      = regexp.MustCompile(`^[\s"'\\-]*[\w./ -]+["'\\]*:(?:\s|$)`)
	fieldName    = regexp.MustCompile(`(?i)^[\s"'\\{-]*name` + field)
	fieldNamed   = regexp.MustCompile(`(?i)^[\s"'\\{-]*name` + field + quotes + credentialed + quotes + `,?\s*$`)
	fieldValue   = regexp.MustCompile(`(?i)^[\s"'\\{-]*value` + field)
	fieldBlock   = regexp.MustCompile(`(?i)^[\s"'\\{-]*value` + field + `(?:[|>][-+0-9]*)?\s*$`)
)

// begins returns what says which of the next lines belong to a credential, if this one begins one, and whether it is a field with
// the name of one.
func begins(line, small []byte) (rest, bool) {
	end := bytes.TrimRight(line, " \t\r\n\"',\\")
	if hasAny(small, encodedHints) && encodedLater.Match(end) {
		return encodedRest, false
	}
	if len(end) == 0 || !hasAny(small, credentialHints) {
		return nil, false
	}
	if last := bytes.TrimRight(end, "-+0123456789 \t"); len(last) > 0 && bytes.IndexByte([]byte(":=|>"), last[len(last)-1]) >= 0 {
		if match := valueLater.FindSubmatch(line); match != nil {
			depth := depthOf(line[len(before.Find(line)):])
			if len(match[1]) > 0 {
				return block(depth), false
			}
			return further(depth), false
		}
	}
	if bytes.HasPrefix(end[bytes.LastIndexAny(end, " \t\"'=,([")+1:], []byte("-")) && flagged.Match(end) {
		return argument, false
	}
	if bytes.Contains(small, []byte("name")) && fieldNamed.Match(line[len(before.Find(line)):]) {
		return valueWithin(maxFields), true
	}
	return nil, false
}

func depthOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t-")) }

func blank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }

// block are the lines after one of YAML: all that are further in, and the first in any case, because a log may have something before
// each that nobody knows.
func block(depth int) rest {
	var further rest
	further = func(line []byte) (bool, rest) {
		if depthOf(line) > depth || blank(line) {
			return true, further
		}
		return false, nil
	}
	return func([]byte) (bool, rest) { return true, further }
}

// further are those lines that are further in and have no names of their own.
func further(depth int) rest {
	var next rest
	next = func(line []byte) (bool, rest) {
		if blank(line) {
			return false, next
		}
		if depthOf(line) > depth && !mapping.Match(line) {
			return true, next
		}
		return false, nil
	}
	return next
}

// argument is the line after a flag, if it is one word or in quotes, and no flag itself.
func argument(line []byte) (bool, rest) {
	line = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("- ")))
	word := bytes.Trim(line, " \t\"',\\")
	if len(word) == 0 || word[0] == '-' || word[len(word)-1] == ':' || !bytes.ContainsFunc(word, isWord) {
		return false, nil
	}
	return bytes.IndexByte([]byte(`"'`), line[0]) >= 0 || !bytes.ContainsAny(word, " \t"), nil
}

func isWord(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// encodedRest are lines of nothing but base64.
func encodedRest(line []byte) (bool, rest) {
	if encodedLine.Match(line) {
		return true, encodedRest
	}
	return false, nil
}

// valueWithin is the value of a name in one of some lines before another one has a name.
func valueWithin(lines int) rest {
	return func(line []byte) (bool, rest) {
		switch {
		case fieldBlock.Match(line):
			return true, block(depthOf(line))
		case fieldValue.Match(line):
			return true, nil
		case lines == 1 || fieldName.Match(line):
			return false, nil
		}
		return false, valueWithin(lines - 1)
	}
}

var privateKey = regexp.MustCompile(`-----(BEGIN|END) [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----`)

// maxKey is how many bytes of a text a private key has at most, with what a log has before each of its lines, and so has any other
// credential with several lines.
const maxKey = 16 << 10

// scrubKeys returns a text without private keys, whatever stands before each of their lines, and where in it a byte is, or what
// stands for that. Of one without an end, maxKey bytes go, and as many before an end without a beginning: it was cut.
func scrubKeys(data []byte, at int) ([]byte, int, int) {
	marks := privateKey.FindAllSubmatchIndex(data, -1)
	if len(marks) == 0 {
		return data, at, 0
	}
	ends := func(mark []int) bool { return string(data[mark[2]:mark[3]]) == "END" }
	var kept []byte
	from, found, moved := 0, 0, 0
	for i, mark := range marks {
		begin, end := mark[0], mark[1]
		switch {
		case begin < from:
			continue
		case ends(mark):
			begin = max(from, begin-maxKey)
		case i+1 < len(marks) && marks[i+1][0] < begin+maxKey:
			// What begins once more may be the key, and this one only be told of.
			if end = marks[i+1][1]; !ends(marks[i+1]) {
				end = marks[i+1][0]
			}
		default:
			end = min(len(data), begin+maxKey)
		}
		kept = append(append(kept, data[from:begin]...), redacted...)
		switch {
		case at >= end:
			moved = len(kept) - end
		case at > begin:
			moved = len(kept) - len(redacted) - at
		}
		from = end
		found++
	}
	return append(kept, data[from:]...), at + moved, found
}

// scrubJSON is scrub for each text in JSON, which is JSON still.
func scrubJSON(data []byte) ([]byte, int) {
	var scrubbed []byte
	found := 0
	for {
		begin := bytes.IndexByte(data, '"')
		if begin < 0 {
			return append(scrubbed, data...), found
		}
		end := begin + 1
		for end < len(data) && data[end] != '"' {
			if data[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(data))
		scrubbed = append(append(scrubbed, data[:begin]...), scrubText(data[begin:end], &found)...)
		data = data[end:]
	}
}

// scrubText is scrub for one text with its quotes.
func scrubText(quoted []byte, found *int) []byte {
	var decoded string
	if json.Unmarshal(quoted, &decoded) != nil {
		return quoted
	}
	scrubbed, n := scrub([]byte(decoded))
	if n == 0 {
		return quoted
	}
	*found += n
	encoded, err := json.Marshal(string(scrubbed))
	if err != nil {
		return []byte(`"` + redacted + `"`)
	}
	return encoded
}
