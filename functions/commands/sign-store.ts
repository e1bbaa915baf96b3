import { exitWithUsageError } from "../../infra/build/command-line.ts";
import type { Finding } from "../../shared/platform/storage/signed-partitions.ts";
import { RollbackRefused } from "../../shared/store/prepare-rollback.ts";
import type { Services } from "../services.ts";

/** Explanations of the reasons of a finding, for the person who decides. */
const MEANINGS: Record<Finding["reason"], string> = {
  changed: "changed or moved by another program, or signed with a key that the vault does not have",
  unsigned: "written by another program",
  olderState: "an earlier state of the row",
  notListed: "a removed row that came back",
  missing: "removed by another program",
};

const nameOf = ({ table, partitionKey, rowKey }: Finding): string => `${table}/${partitionKey}/${rowKey}`;

/**
 * Lists the signed rows that the service does not use, because another program changed them, removed them or put them back. With
 * `accept`, accepts all rows as they are and records it in the audit log. Rows in `remove`, named as they are listed, are
 * removed instead.
 */
export async function signStore(
  { signedRows, randomness, clock }: Pick<Services, "signedRows" | "randomness" | "clock">,
  { accept, remove = [] }: { accept: boolean; remove?: readonly string[] | undefined },
  report: (line: string) => unknown,
): Promise<void> {
  const findings = await signedRows.inspect();
  for (const finding of findings)
    report([nameOf(finding), finding.reason, MEANINGS[finding.reason], finding.content ?? ""].join("\t"));
  const unknown = remove.find((name) => !findings.some((finding) => nameOf(finding) === name));
  if (unknown !== undefined) return exitWithUsageError(`The list has no row ${unknown}.`);
  if (!accept) {
    report(`Rows: ${findings.length}. Nothing was written. With --accept, the service uses these rows as they are.`);
    return;
  }
  const requestId = randomness.ulid(clock.now());
  const removed = findings.filter((finding) => remove.includes(nameOf(finding)));
  await signedRows.accept(findings, { requestId, remove: removed });
  report(`Accepted ${findings.length - removed.length} rows, removed ${removed.length}, and signed all rows again.`);
}

/**
 * @throws {RollbackRefused} if the store has rows that this version does not use, because an earlier version would use them.
 */
export async function requireNoFindings({
  signedRows,
  serviceKeyVault,
}: Pick<Services, "signedRows" | "serviceKeyVault">): Promise<void> {
  const findings = serviceKeyVault ? await signedRows.inspect() : [];
  const names = findings.map(nameOf);
  if (names.length > 0)
    throw new RollbackRefused(
      `The earlier build would use rows that another program changed: ${names.join(", ")}. Accept or remove them first: npm run store -- sign`,
    );
}
