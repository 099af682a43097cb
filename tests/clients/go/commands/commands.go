// Package commands is the conversation of a Go client with a test.
//
// A command is a line of words, `produce key=value ...` or `consume key=value ...`; its answer is a
// line of JSON, {"ok": ...} or {"error": "...", "code": n}. Records are lines of text in files;
// their form is described in tests/clients/records.py.
package commands

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Timeout is for one command. A client that has not done its work by then never will.
const Timeout = 30 * time.Second

// Header has a nil value for null.
type Header struct {
	Name  string
	Value []byte
}

// Record has a nil key or value for null, and -1 for no time.
type Record struct {
	Offset      int64
	Partition   int32
	TimestampMs int64
	Key, Value  []byte
	Headers     []Header
}

// Words are the key=value pairs of a command.
type Words map[string]string

// Ends gives the end of each partition to be read.
func (words Words) Ends() map[int32]int64 {
	ends := map[int32]int64{}
	numbers := strings.Split(words["ends"], ",")
	for index, partition := range strings.Split(words["partitions"], ",") {
		ends[int32(number(partition))] = number(numbers[index])
	}
	return ends
}

// Start is the offset from which all of them are read.
func (words Words) Start() int64 { return number(words["start"]) }

// Run takes commands from standard input until it ends.
func Run(
	produce func(Words, []Record) error, consume func(Words, func(Record)) error,
) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		words := Words{}
		for _, pair := range strings.Fields(rest) {
			key, value, _ := strings.Cut(pair, "=")
			words[key] = value
		}
		count, err := run(name, words, produce, consume)
		answer := map[string]any{"ok": count}
		if err != nil {
			answer = map[string]any{"error": err.Error(), "code": -1}
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

func run(
	name string, words Words,
	produce func(Words, []Record) error, consume func(Words, func(Record)) error,
) (int, error) {
	if name == "produce" {
		text, err := os.ReadFile(words["file"])
		if err != nil {
			return 0, err
		}
		var records []Record
		for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			records = append(records, parse(line))
		}
		return len(records), produce(words, records)
	}
	var out strings.Builder
	count := 0
	err := consume(words, func(record Record) {
		out.WriteString(print(record))
		count++
	})
	if err != nil {
		return 0, err
	}
	return count, os.WriteFile(words["file"], []byte(out.String()), 0o600)
}

func parse(line string) Record {
	fields := strings.Split(line, "\t")
	record := Record{
		Partition:   int32(number(fields[0])),
		TimestampMs: number(fields[1]),
		Key:         bytes(fields[2]),
		Value:       bytes(fields[3]),
	}
	for _, header := range strings.Split(fields[4], ",") {
		if name, value, found := strings.Cut(header, ":"); found {
			record.Headers = append(record.Headers, Header{string(bytes(name)), bytes(value)})
		}
	}
	return record
}

func print(record Record) string {
	var headers []string
	for _, header := range record.Headers {
		headers = append(headers, text([]byte(header.Name))+":"+text(header.Value))
	}
	return fmt.Sprintf("%d\t%d\t%d\t%s\t%s\t%s\n", record.Offset, record.Partition,
		record.TimestampMs, text(record.Key), text(record.Value), strings.Join(headers, ","))
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func bytes(text string) []byte {
	if text == "~" {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}

func text(data []byte) string {
	if data == nil {
		return "~"
	}
	return base64.StdEncoding.EncodeToString(data)
}
