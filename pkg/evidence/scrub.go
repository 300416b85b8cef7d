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
const credentialWords = `(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credential|authorization|signature|` +
	credentialKeys + `)`

const credentialKeys = `(?:api|access|account|private|secret|signing|encryption|shared|client|ssh|auth)[_ -]?key`

// credentialHints are in small letters what credentialWords and short names begin or end with.
var credentialHints = []string{"pass", "pw", "psk", "secret", "token", "credential", "auth", "sig", "key"}

const (
	// escaped is a value in the quotes of a text in quotes, and enclosed one in any quotes, or in brackets. What was cut has no end.
	escaped  = `\\"(?:[^"\\\n]|\\[^"\\\n]|\\\\+.)*(?:\\")?|\\\\+"[^"\n]*"?`
	enclosed = escaped + `|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\[[^\]\n]*\]?|\{[^}\n]*\}?`
	// value is one that may be a word as well, or a block of YAML in a text in quotes.
	value = `(?:` + enclosed + `|[|>][-+0-9]*\\+n[^"\n]*|(?:(?:basic|bearer|digest|negotiate)[ \t]+)?[^\s"'&;]+)`
	// credentialed is the name of a credential, and name what is between it and its value as well, also as URLs and JSON have it.
	credentialed = `[\w.-]*` + credentialWords + `[\w.-]*`
	name         = `(?:` + credentialWords + `[\w.-]*|(?:\b|_|%26|%3f|u0026)(?:sig|auth|pass|psk|(?:db|root|user|bind)?pw))(?:["'\]\\]|u0022|%(?:25)?22)*[ \t]*`
	// is is between a name and its value.
	is = `(?::=|=>|[:=]|\\+u003[ad]|%(?:25)?3[ad])`
	// said is what is before a value that follows after a blank.
	said = `(?:pass(?:word|wd|phrase|code)|pwd|(?:db|root|user|bind)pw|secret|token|` + credentialKeys + `)[ \t]+(?:is[ \t]+)?\\*["']?`
	// flag is one whose value is a credential.
	flag = `(?:^|[\s"'=,(\[])--?` + credentialed
	// quotes may be around what a field is called, and field is between it and its value. next is between two fields.
	quotes = `["'\\]*`
	field  = quotes + `[ \t]*[:=][ \t]*`
	next   = quotes + `(?:[\s,]|\\{1,4}n)+` + quotes
	// item is the value of a field among others, and userinfo one with a password after a colon.
	item     = `(?:` + enclosed + `|[^\s,}"']+)`
	userinfo = `(?:\\+"[^":\n]*:[^"\n]+"?|"[^":\n]*:[^"\n]+"?|'[^':\n]*:[^'\n]+'?|[^\s"':]+:[^\s"'/][^\s"']*)`
	// encoded is base64 of PEM, wherever that begins, of access to a cluster or a registry, or of what a machine is started with.
	encoded = `(?:[A-Za-z0-9+/_-]*(?:LS0tLS1CRUdJTi|LS0tQkVHSU4g|LS0tLUJFR0lO)|` +
		`\b(?:YXBpVmVyc2lvbj|a2luZDog|eyJhcGlWZXJzaW9uI|eyJraW5kI|eyJhdXRocyI6|ewogICJhdXRocyI6|ewoJImF1dGhzIj|I2Nsb3VkLWNvbmZpZ|IyEvYmlu))[A-Za-z0-9+/_-]*={0,2}`
)

var encodedHints = []string{"ls0t", "yxbpvmvyc2lvbj", "a2luzdog", "eyjh", "eyjr", "ewog", "ewoj", "i2nsb3vklwnvbmzpz", "iyevymlu"}

var saidHints = []string{"word ", "wd ", "phrase ", "code ", "pw ", "secret ", "token ", "key "}

// credentials are what looks like one, after and before what stays of it, in lines that have one of some words in small letters. A
// cookie goes on to the end of its line, and so does how one is authorized: each scheme has its own parts. What is spared stays, but
// what looks like a credential may begin in it: only what has a name is, in lines that have one of credentialHints.
var credentials = []struct {
	hints   []string
	pattern *regexp.Regexp
	spared  func(line []byte, begin, value, end int) bool
}{
	{encodedHints, regexp.MustCompile(`()` + encoded), nil},
	{[]string{"eyj"}, regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`), nil},
	{[]string{"."}, regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), nil},
	{
		[]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "ya29.", "ltai", "gaaaaa", "hvs.",
			"sk-ant-", "sk-proj-", "k_live_", "k_test_", "npm_", "dckr_pat_"},
		regexp.MustCompile(`()\b(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|` +
			`AIza[\w-]{30,}|ya29\.[\w-]{10,}|LTAI[A-Za-z0-9]{12,}|gAAAAA[\w-]{20,}={0,2}|hvs\.[\w-]{20,}|` +
			`sk-(?:ant|proj)-[\w-]{10,}|[rs]k_(?:live|test)_\w{10,}|npm_[A-Za-z0-9]{30,}|dckr_pat_[\w-]{10,})`),
		nil,
	},
	{[]string{"$"}, regexp.MustCompile(`()\$(?:[156y]|2[abxy]?)\$[\w./$=,+-]{8,}`), nil},
	{[]string{"cookie"}, regexp.MustCompile(`(?i)(\bcookie["'\]\\]*[ \t]*[:=][ \t]*).+`), nil},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)(authorization["'\]\\]*[ \t]*[:=][ \t]*)(?:` + enclosed + `|.+)`), nil},
	{nil, regexp.MustCompile(`(?i)(` + name + is + `(?:[ \t]|\\{1,4}n)*)` + value), sparedField},
	{nil, regexp.MustCompile(`(?i)(` + flag + `(?:\\*["']?,?[ \t]+|\\*["'],))` +
		`(?:\[redacted\]|\\+"[^"\\\n-][^"\n]*"?|"[^"\\\n-](?:[^"\\\n]|\\.)*"?|'[^'\n-][^'\n]*'?|[^\s"'&;\\-][^\s"'&;]*)`), sparedValue},
	{saidHints, regexp.MustCompile(`(?i)(` + said + `)[\w!#$%*+./?@^~][^\s"'&;,]*`), sparedWord},
	{[]string{"valuefrom:"}, regexp.MustCompile(`(?i)(\bname:` + credentialed + `[, ]value:).*?([, ]valuefrom:)`), nil},
	{[]string{"value"}, regexp.MustCompile(`(?i)(\bname` + field + quotes + credentialed + next + `value` + field + `)` + item), nil},
	{[]string{"value"}, regexp.MustCompile(`(?i)(\bvalue` + field + `)` + item + `(` + next + `name` + field + quotes + credentialed + `)`), nil},
	{[]string{"bearer "}, regexp.MustCompile(`(?i)(\bbearer +)[A-Za-z0-9._~+/=-]{16,}`), nil},
	{[]string{"curl", "ctr"}, regexp.MustCompile(`(\b(?:curl|ctr)\b[^;|\n]*?\s(?:-[uU][ \t]*|--(?:proxy-)?user[ \t=]+))` + userinfo), nil},
	{[]string{"creds"}, regexp.MustCompile(`(--(?:[a-z]+-)?creds[ \t=]+)` + userinfo), nil},
	{[]string{"mysql", "mariadb"}, regexp.MustCompile(`(\b(?:mysql|mariadb)[\w-]*\b[^;|\n]*?\s-p)[^\s"'&;=-][^\s"'&;]*`), nil},
	{[]string{"sshpass", "login"}, regexp.MustCompile(`(\b(?:sshpass|(?:docker|podman|nerdctl|helm|oras|crane|skopeo)\b[^;|\n]*?\blogin)\b[^;|\n]*?\s-p[ \t]*)[^\s&;-][^\s&;]*`), nil},
	// What are only digits before a / is a port.
	{[]string{"://"}, regexp.MustCompile(`(://)[^\s/:"\\]*:(?:[0-9]*[^\s/0-9"\\][^\s"\\]*|[0-9]+)(@)`), nil},
	{[]string{"http"}, regexp.MustCompile(`(https?://)(?:[^\s/:@"'\\]{8,}|[^\s/:@"'\\0-9]*[0-9][^\s/:@"'\\]*)(@)`), nil},
}

// maxSpared is how many bytes what is spared has at most. They are read once more.
const maxSpared = 256

const (
	// plain is a value that is no credential: whether something is so, a time, or a path.
	plain = `(?:true|false|yes|no|ok|none|null|nil|(?:[0-9.]{1,6}(?:[num]?s|[mhd])){1,3}|` +
		`/(?:etc|var|run|srv|opt|usr|home|root|tmp|mnt|proc|sys|dev)/[\w./-]*)`
	// after is what may be between a value and the next one.
	after = `\\*["']?[,.:)\]}]*$`
)

var (
	plainValue = regexp.MustCompile(`^\\*["']?` + plain + after)
	// plainField is one that is no credential: the name of an object, a line of code, how one is authorized, what the kernel tells of
	// hardware, or why there is no credential.
	plainField = regexp.MustCompile(`^(?:(?i:secret)=\\*"[a-z0-9-]+/[a-z0-9.-]+` + after +
		`|(?i:secret)\\*":[ ]?\{(?:\\*"(?:name|namespace)\\*":[ ]?\\*"[\w.-]*\\*",?)+` + after +
		`|[\w-]+\.go:[0-9]{1,6}` + after +
		`|-*authorization-mode[=:][ ]?(?:(?:Webhook|RBAC|Node|ABAC|AlwaysAllow|AlwaysDeny),?)+` + after +
		`|sig(?:nature)?[=:][ ]?0x[0-9a-f]{1,16}` + after +
		`|\w+: (?:unexpected|failed|unable|invalid|Get|Head|Post|Put|Patch|Delete)$)`)
	// ordinary is what is said of a credential.
	ordinary = regexp.MustCompile(`^(?:[0-9]{1,3}|v[0-9](?:(?:alpha|beta)[0-9])?|https?://.*|` + plain + `|[^0-9]{1,7}|[a-z][A-Za-z_.-]{0,15}=|` +
		`[A-Za-z]?[a-z]{1,14}(?:ed|ing|ions?|ers?|ors?|ment|ly|[ai]ble|[ae]nce|ity|ive|al|ate|ies|ness|ful|less|[ae]nts?|ory|ary|ous|ure)|` +
		`because|between|bootstrap|complexity|database|directory|endpoints?|incorrect|kubeconfig|lifetime|mismatch|registry|` +
		`requests?|response|security|services?|together|username|whatever)[.:!?)\]}]*$`)
	capital = regexp.MustCompile(`[A-Z].*[0-9]|[0-9].*[A-Z]`)
)

func sparedValue(line []byte, _, value, end int) bool {
	return end-value <= maxSpared && plainValue.Match(line[value:end])
}

// sparedField says that a field is no credential.
func sparedField(line []byte, begin, value, end int) bool {
	begin = nameOf(line, begin)
	if end-begin > maxSpared {
		return false
	}
	if plainValue.Match(line[value:end]) || plainField.Match(line[begin:end]) {
		return true
	}
	// Only a word has nothing in it that begins like this once more, and would be read again and again.
	return isWord(rune(line[value])) &&
		(bytes.HasSuffix(line[:value], []byte(`": `)) && inURL(line[max(0, begin-maxSpared):begin]) ||
			bytes.HasSuffix(line[:value], []byte(`" : `)) && bytes.HasSuffix(bytes.TrimRight(line[max(0, begin-16):begin], `\"`), []byte("volume ")))
}

// inURL says that what follows is in a URL in quotes. What comes after these is what became of the request.
func inURL(before []byte) bool {
	scheme, rest, found := bytes.Cut(before[bytes.LastIndexByte(before, '"')+1:], []byte("://"))
	return found && bytes.HasPrefix(scheme, []byte("http")) && !bytes.ContainsAny(rest, " \t")
}

// sparedWord says that what follows the name of a credential is no value. A secret may also be an object with a name.
func sparedWord(line []byte, begin, value, end int) bool {
	word := line[value:end]
	name := line[nameOf(line, begin):value]
	return end-value <= maxSpared && (ordinary.Match(word) ||
		(bytes.HasPrefix(name, []byte("secret ")) || bytes.HasPrefix(name, []byte("Secret "))) && !capital.Match(word))
}

// nameOf returns where a name begins that has a word in it.
func nameOf(line []byte, word int) int {
	before := line[max(0, word-maxSpared):word]
	return word - len(before) + len(bytes.TrimRightFunc(before, func(r rune) bool { return isWord(r) || r == '_' || r == '.' || r == '-' }))
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

// lower has letters be small, and tabs be blanks. What is no ASCII stays, so that what is found is where it is in the line.
func lower(text []byte) {
	for i, c := range text {
		switch {
		case 'A' <= c && c <= 'Z':
			text[i] = c + 'a' - 'A'
		case c == '\t':
			text[i] = ' '
		}
	}
}

// scrubLine appends a line without what looks like a credential.
func scrubLine(to, line, small []byte, found *int) []byte {
	named := hasAny(small, credentialHints)
	for i := range credentials {
		credential := &credentials[i]
		if credential.spared != nil && !named || credential.hints != nil && !hasAny(small, credential.hints) {
			continue
		}
		var scrubbed []byte
		last, at := 0, 0
		for at < len(line) {
			match := credential.pattern.FindSubmatchIndex(line[at:])
			if match == nil {
				break
			}
			begin, end, next := at+match[3], at+match[1], at+match[1]
			if len(match) > 4 {
				end = at + match[4]
			}
			if credential.spared != nil && credential.spared(line, at+match[0], begin, end) {
				at = begin
				continue
			}
			at = next
			if begin == end || string(line[begin:end]) == redacted {
				continue
			}
			scrubbed = append(append(scrubbed, line[last:begin]...), redacted...)
			last = end
			*found++
		}
		if scrubbed == nil {
			continue
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
