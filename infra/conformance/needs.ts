import { spawnSync } from "node:child_process";

/** Runtimes that parts need, with the command that shows them and how to install them. */
const NEEDS = {
  python: {
    name: "Python 3.11 or later with venv",
    remedy: "install python3 and python3-venv",
    command: ["python3", "-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"],
  },
  java: {
    name: "Java 17 or later",
    remedy: "install openjdk-17-jre-headless or a later one",
    command: ["java", "-version"],
    accepts: (output: string) => Number(/version "(\d+)/.exec(output)?.[1]) >= 17,
  },
  maven: { name: "Maven", remedy: "install maven", command: ["mvn", "--version"] },
  go: {
    name: "Go 1.26 or later",
    remedy: "install golang",
    command: ["go", "version"],
    accepts: (output: string) => Number(/go1\.(\d+)/.exec(output)?.[1]) >= 26,
  },
  xmlsec1: { name: "xmlsec1", remedy: "install xmlsec1", command: ["xmlsec1", "--version"] },
} satisfies Record<string, Runtime>;

interface Runtime {
  name: string;
  /** The second half of the sentence "<name> was not found; <remedy>." */
  remedy: string;
  /** Exits with 0 if the runtime is present. */
  command: string[];
  /** Whether the command's output shows a version that is new enough. */
  accepts?(output: string): boolean;
}

export type Need = keyof typeof NEEDS;

/** Returns a sentence for each runtime that is missing or too old. */
export function missingRuntimes(needs: readonly Need[]): string[] {
  return needs.flatMap((need) => {
    const { name, remedy, command, accepts = () => true }: Runtime = NEEDS[need];
    const { status, stdout, stderr } = spawnSync(command[0]!, command.slice(1), { encoding: "utf8" });
    return status === 0 && accepts(stdout + stderr) ? [] : [`${name} was not found; ${remedy}.`];
  });
}
