import { type ParseArgsConfig, parseArgs } from "node:util";

/**
 * The arguments of one of package.json's commands. `--help` prints the help and ends; an argument there is none of ends
 * with 1 and says which.
 */
export function commandLine<T extends ParseArgsConfig>(help: string, config: T): ReturnType<typeof parseArgs<T>> {
  if (process.argv.slice(2).includes("--help")) {
    console.log(help);
    process.exit(0);
  }
  try {
    return parseArgs(config);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${help}`);
    process.exit(1);
  }
}
