import { writeFileSync } from "node:fs";
import setup from "../support/global-setup.ts";
import {
  readSpecificationAnswers,
  type SpecificationAnswers,
  startForSpecification,
  VARIES,
} from "./specification-answers.ts";

/**
 * node test/http/record-specification.ts FILE
 *
 * Records the answers of a version to the calls of the specification, for specification-answers.test.ts. To record an earlier
 * version, copy the files of this folder whose names contain `specification` into a checkout of that version and run it there. It
 * records three services, and marks members whose values differ as varying.
 */
const RECORDINGS = 3;
const file = process.argv[2];
if (file === undefined || file.startsWith("-")) {
  console.error("Name the file to write: node test/http/record-specification.ts FILE");
  process.exit(2);
}

const tearDown = await setup();
try {
  let merged: SpecificationAnswers | undefined;
  for (let recording = 0; recording < RECORDINGS; recording++) {
    const service = await startForSpecification();
    try {
      const answers = await readSpecificationAnswers(service);
      merged = merged ? markVarying(merged, answers) : answers;
    } finally {
      await service.stop();
    }
  }
  writeFileSync(file, `${JSON.stringify(merged, null, 1)}\n`);
} finally {
  await tearDown();
}
process.exit(0);

function markVarying(first: SpecificationAnswers, second: SpecificationAnswers): SpecificationAnswers {
  return Object.fromEntries(
    Object.entries(first).map(([call, { status, type, members }]) => {
      const other = second[call];
      if (other?.status !== status || other.type !== type)
        throw new Error(`${call} answered ${status} ${type}, then ${other?.status} ${other?.type}`);
      const paths = [...new Set([...Object.keys(members), ...Object.keys(other.members)])];
      const values = (path: string) =>
        JSON.stringify(members[path]) === JSON.stringify(other.members[path]) ? members[path]! : [VARIES];
      return [call, { status, type, members: Object.fromEntries(paths.map((path) => [path, values(path)])) }];
    }),
  );
}
