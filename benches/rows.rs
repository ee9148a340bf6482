//! Whole processes side by side: `lucy`, and for each row something that shows what the work costs by itself.
//!
//! Run by `scripts/bench`. Everything is on 127.0.0.1 and interleaved, so that a busy machine is busy for
//! all alike: read the ratios first. Prints a table and writes `target/bench.json`.

mod measure;
mod provider;

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use serde_json::json;

use measure::{Sample, Series, measure};
use provider::Provider;

const RUNS: usize = 9;
const DELTAS: usize = 20_000;
const ROUNDS: usize = 20;
const KEY_VARIABLE: &str = "LUCY_BENCH_KEY";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().collect();
    if let [_, flag, port, path] = &words[..]
        && flag == "--read"
    {
        return read_plainly(port.parse().expect("a port"), path);
    }
    let lucy = env::var_os("LUCY_BIN").map_or_else(|| env!("CARGO_BIN_EXE_lucy").into(), PathBuf::from);
    let bench = Bench { lucy, home: tempfile::tempdir().expect("a folder"), provider: Provider::start() };
    let rows = [bench.first_request(), bench.deltas(), bench.tool_rounds()];
    report(&bench, &rows);
    ExitCode::SUCCESS
}

/// One row: the same work by several programs, in one unit.
struct Row {
    name: String,
    unit: &'static str,
    series: Vec<Series>,
}

struct Bench {
    lucy: PathBuf,
    home: tempfile::TempDir,
    provider: Provider,
}

impl Bench {
    /// From the start of the process to its whole request at the server.
    fn first_request(&self) -> Row {
        let mut series = ["lucy", "curl", "true, whole"].map(Series::new);
        for _ in 0..RUNS {
            series[0].add(self.to_request(self.lucy("/deltas/1"), MESSAGE));
            series[1].add(self.to_request(self.curl("/deltas/1"), ""));
            series[2].add(measure(Command::new("true"), "").wall_ms);
        }
        Row { name: "start to first request".into(), unit: "ms wall", series: series.into() }
    }

    /// What one more delta costs, server not counted.
    fn deltas(&self) -> Row {
        let mut series = ["lucy", "curl -N", "plain reader"].map(Series::new);
        let many = format!("/deltas/{DELTAS}");
        let programs: [&dyn Fn(&str) -> Sample; 3] =
            [&|path| measure(self.lucy(path), MESSAGE), &|path| measure(self.curl(path), ""), &|path| {
                measure(self.reader(path), "")
            }];
        for _ in 0..RUNS {
            for (series, program) in series.iter_mut().zip(programs) {
                let (one, all) = (program("/deltas/1"), program(&many));
                series.add((all.cpu_ms - one.cpu_ms) * 1000.0 / (DELTAS - 1) as f64);
            }
        }
        Row { name: format!("each of {DELTAS} deltas"), unit: "us CPU", series: series.into() }
    }

    /// What one more round with the command `true` costs.
    fn tool_rounds(&self) -> Row {
        let mut series = ["lucy", "sh -lc true", "two fdatasyncs"].map(Series::new);
        for _ in 0..RUNS {
            let none = measure(self.lucy("/rounds/0"), MESSAGE);
            let all = measure(self.lucy(&format!("/rounds/{ROUNDS}")), MESSAGE);
            series[0].add((all.wall_ms - none.wall_ms) / ROUNDS as f64);
            let mut shell = Command::new("sh");
            shell.args(["-lc", "true"]);
            series[1].add(measure(shell, "").wall_ms);
            series[2].add(two_syncs(self.home.path()));
        }
        Row { name: "a tool round".into(), unit: "ms wall", series: series.into() }
    }

    fn to_request(&self, command: Command, stdin: &str) -> f64 {
        let started = Instant::now();
        measure(command, stdin);
        self.provider.last_request().duration_since(started).as_secs_f64() * 1000.0
    }

    fn lucy(&self, path: &str) -> Command {
        let config = format!(
            "[llm]\nbase_url = \"http://127.0.0.1:{}{path}\"\nmodel = \"m\"\napi_key_env = \"{KEY_VARIABLE}\"\n\
             [limits]\nstream_mib = 64\n",
            self.provider.port()
        );
        fs::write(self.home.path().join("config.toml"), config).expect("a config");
        let mut command = Command::new(&self.lucy);
        command.arg("--jsonl").env("LUCY_HOME", self.home.path()).env(KEY_VARIABLE, "bench-key-5u9");
        command
    }

    fn curl(&self, path: &str) -> Command {
        let mut command = Command::new("curl");
        let url = format!("http://127.0.0.1:{}{path}/chat/completions", self.provider.port());
        command.args(["-sN", "--noproxy", "*", "-d", "{}", &url]);
        command
    }

    fn reader(&self, path: &str) -> Command {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--read", &self.provider.port().to_string(), path]);
        command
    }
}

const MESSAGE: &str = "{\"type\":\"message\",\"text\":\"go\"}\n";

/// The least that reading a stream can be: lines from a socket to stdout, without looking into them.
fn read_plainly(port: u16, path: &str) -> ExitCode {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("the provider");
    let request = format!(
        "POST {path}/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    socket.write_all(request.as_bytes()).expect("a socket");
    let mut stdout = std::io::stdout().lock();
    let (mut buffer, mut rest) = (vec![0; 64 * 1024], Vec::new());
    loop {
        let count = socket.read(&mut buffer).expect("a socket");
        if count == 0 {
            return ExitCode::SUCCESS;
        }
        rest.extend_from_slice(&buffer[..count]);
        if let Some(end) = memchr::memrchr(b'\n', &rest) {
            let lines = rest[..end].split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"data:"));
            let data: Vec<&[u8]> = lines.collect();
            stdout.write_all(&data.join(&b'\n')).expect("a pipe");
            rest.drain(..=end);
        }
    }
}

/// The commits of a round: its call and its result.
fn two_syncs(folder: &Path) -> f64 {
    let mut file = fs::File::create(folder.join("sync")).expect("a file");
    let started = Instant::now();
    for _ in 0..2 {
        file.write_all(&[b'x'; 300]).and_then(|()| file.sync_data()).expect("a disk");
    }
    started.elapsed().as_secs_f64() * 1000.0
}

fn report(bench: &Bench, rows: &[Row]) {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown").to_owned();
    let mut out = std::io::stdout().lock();
    let mut line = |text: String| writeln!(out, "{text}").expect("stdout");
    line(format!(
        "{}, median of {RUNS} runs, load {load}, files in {}",
        bench.lucy.display(),
        env::temp_dir().display()
    ));
    for row in rows {
        let own = row.series[0].median();
        line(format!("\n{} ({})", row.name, row.unit));
        for series in &row.series {
            let (low, median, high) = (series.min(), series.median(), series.max());
            line(format!(
                "  {:<16} {median:>9.2}  ({low:.2} to {high:.2})  lucy is {:.2}x",
                series.name,
                own / median
            ));
        }
    }
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let series = row
                .series
                .iter()
                .map(|s| json!({"name": s.name, "median": s.median(), "min": s.min(), "max": s.max()}));
            json!({"row": row.name, "unit": row.unit, "series": series.collect::<Vec<_>>()})
        })
        .collect();
    let json = json!({"load": load, "runs": RUNS, "rows": rows});
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench.json"), format!("{json:#}\n"))
        .expect("a file");
}
