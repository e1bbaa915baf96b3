// Command-line parsing, shared by all commands of the project that people run.

import { type ParseArgsConfig, parseArgs } from "node:util";

/**
 * Parses the arguments of one of the project's commands. `--help` and `-h` print the help and exit with 0. An unknown argument
 * exits with 2 and a message that names it.
 */
export function commandLine<T extends ParseArgsConfig>(help: string, config: T): ReturnType<typeof parseArgs<T>> {
  if (process.argv.slice(2).some((argument) => argument === "--help" || argument === "-h")) {
    console.log(help);
    process.exit(0);
  }
  try {
    return parseArgs(config);
  } catch (error) {
    // After the first sentence, Node's message explains its own syntax for values that start with a dash.
    return exitWithUsageError((error as Error).message.split(/\. |\n/, 1)[0]!);
  }
}

/**
 * Prints why the arguments are invalid and exits with 2. Exit code 1 is for failures. A closing period or colon of the reason is
 * replaced, because a reference to `--help` follows.
 */
export function exitWithUsageError(reason: string): never {
  console.error(`${reason.replace(/[.:]$/, "")}. See --help.`);
  process.exit(2);
}
