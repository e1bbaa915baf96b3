import { type ParseArgsConfig, parseArgs } from "node:util";

/**
 * The arguments of one of the project's commands. `--help` and `-h` print the help and end with 0; what the command does
 * not take ends with 2 and a sentence that says which.
 */
export function commandLine<T extends ParseArgsConfig>(help: string, config: T): ReturnType<typeof parseArgs<T>> {
  if (process.argv.slice(2).some((argument) => argument === "--help" || argument === "-h")) {
    console.log(help);
    process.exit(0);
  }
  try {
    return parseArgs(config);
  } catch (error) {
    // Behind its first sentence Node explains how its own parser takes what begins with a dash.
    return usedWrong((error as Error).message.split(/\. |\n/, 1)[0]!);
  }
}

/** Ends a command that can't do what its arguments ask for, with 2: 1 is for what fails. */
export function usedWrong(reason: string): never {
  console.error(`${reason.replace(/[.:]$/, "")}. See --help.`);
  process.exit(2);
}
