import {
  Button,
  MessageBar,
  MessageBarBody,
  makeStyles,
  mergeClasses,
  ProgressBar,
  Text,
  tokens,
} from "@fluentui/react-components";
import { type ReactNode, useEffect, useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { FINDINGS } from "./finding-texts.ts";

/** Result of one request. A long log is verified in several requests. */
type Part = Schemas["AuditVerification"];

const useStyles = makeStyles({
  chain: { listStyleType: "none", margin: 0, padding: 0 },
  link: {
    position: "relative",
    paddingInlineStart: tokens.spacingHorizontalXXL,
    paddingBottom: tokens.spacingVerticalM,
    overflowWrap: "anywhere",
    ":before": {
      content: '""',
      position: "absolute",
      insetInlineStart: "5px",
      top: "6px",
      width: "12px",
      height: "12px",
      borderRadius: "50%",
      backgroundColor: tokens.colorPaletteGreenBackground3,
    },
    ":not(:last-child):after": {
      content: '""',
      position: "absolute",
      insetInlineStart: "10px",
      top: "18px",
      bottom: "-6px",
      width: "2px",
      backgroundColor: tokens.colorNeutralStroke1,
    },
  },
  broken: { ":before": { backgroundColor: tokens.colorPaletteRedBackground3, borderRadius: 0 } },
  withoutDigest: { ":before": { backgroundColor: tokens.colorNeutralStroke1 } },
});

/**
 * Verifies the audit log after a click, because a verification reads the whole log. Every ten minutes, the service signs a
 * digest of the new entries. Each digest contains the previous one, so they form a chain.
 */
export function Verification() {
  const [isStarted, setStarted] = useState(false);
  if (isStarted) return <Result />;
  return (
    <div>
      <Button onClick={() => setStarted(true)}>Verify audit log</Button>
    </div>
  );
}

/** The result of a verification. A long log is verified in several requests, one for each part. */
function Result() {
  const parts = api.useInfiniteQuery("get", "/audit/verify", { params: { query: {} } }, BY_CURSOR);
  const { data, hasNextPage, isFetching, error, fetchNextPage } = parts;
  useEffect(() => {
    if (hasNextPage && !isFetching && !error) void fetchNextPage();
  }, [hasNextPage, isFetching, error, fetchNextPage]);
  const pages: Part[] = data?.pages ?? [];
  const entries = sum(pages, (part) => part.entries);
  const isComplete = data !== undefined && !hasNextPage;
  return (
    <>
      <QueryFailure of={parts} />
      <div role="status">
        {!isComplete && !error && (
          <>
            <Text>Verification in progress: {counted(entries, "entry", "entries")} verified</Text>
            <ProgressBar />
          </>
        )}
        {isComplete && <Verdict parts={pages} />}
      </div>
      {pages.length > 0 && <Chain parts={pages} isComplete={isComplete} />}
    </>
  );
}

const sum = (parts: Part[], numberOf: (part: Part) => number): number =>
  parts.reduce((total, part) => total + numberOf(part), 0);

/** The verdict after the last part: not signed, intact, or failed with a number of problems. */
function Verdict({ parts }: { parts: Part[] }) {
  const findings = sum(parts, (part) => part.findingsTotal);
  const [intent, text] = parts.some(({ sealing }) => sealing === "notConfigured")
    ? ([
        "warning",
        "The audit log can't be verified because it is not signed. Set AUDIT_SIGNING_KEYS to sign new entries.",
      ] as const)
    : parts.every(({ intact }) => intact)
      ? (["success", "The audit log is intact: no signed entry was changed, removed or inserted."] as const)
      : ([
          "error",
          `Verification failed: ${counted(findings, "problem")} found. Entries may have been changed. See the list below.`,
        ] as const);
  return (
    <MessageBar intent={intent} layout="multiline">
      <MessageBarBody>{text}</MessageBarBody>
    </MessageBar>
  );
}

/** The verified chain, from the start of the log to the first unsigned entry. */
function Chain({ parts, isComplete }: { parts: Part[]; isComplete: boolean }) {
  const styles = useStyles();
  /**
   * Returns one element of the chain. `withoutDigest`: a period whose entries were deleted or are not signed yet.
   */
  const link = (key: string, kind: "intact" | "broken" | "withoutDigest", children: ReactNode) => (
    <li key={key} className={mergeClasses(styles.link, kind !== "intact" && styles[kind])}>
      {children}
    </li>
  );
  const [first, last] = [parts[0]!, parts.at(-1)!];
  return (
    <ol className={styles.chain} aria-label="Digest chain">
      {/* The start is null if nothing is signed. */}
      {first.beginning &&
        link(
          "beginning",
          "intact",
          <>
            Start of the log: <Instant at={first.beginning} />.
          </>,
        )}
      {parts
        .flatMap(({ purges }) => purges)
        .map(({ from, to, entries, actor, purgedAt }) =>
          link(
            `purge ${from}`,
            "withoutDigest",
            <>
              On <Instant at={purgedAt} />, {actor} deleted {counted(entries, "old entry", "old entries")} from{" "}
              <Instant at={from} /> to <Instant at={to} />.
            </>,
          ),
        )}
      {parts.map(({ checkedFrom, checkedTo, digests, entries, entriesWithoutCode, intact, findings }) =>
        // A part without a verified interval adds nothing to the chain.
        checkedFrom === null || checkedTo === null
          ? null
          : link(
              checkedFrom,
              intact ? "intact" : "broken",
              <>
                <Instant at={checkedFrom} /> to <Instant at={checkedTo} />: {counted(entries, "entry", "entries")} with{" "}
                {counted(digests, "signed digest")} {intact ? "verified" : "failed verification"}.
                {entriesWithoutCode > 0 &&
                  ` Without authentication code, from an earlier version: ${counted(entriesWithoutCode, "entry", "entries")}.`}
                {findings.length > 0 && (
                  <ul>
                    {findings.map(({ kind, entryId, interval, detail }) => (
                      <li key={`${kind} ${entryId} ${interval} ${detail}`}>
                        {FINDINGS[kind]}
                        {interval !== undefined && (
                          <>
                            , in the 10-minute interval from <Instant at={interval} />
                          </>
                        )}
                        : {detail}
                        {entryId !== undefined && ` Entry ID: ${isolated(entryId)}.`}
                      </li>
                    ))}
                  </ul>
                )}
              </>,
            ),
      )}
      {isComplete &&
        last.lastDigest &&
        link(
          "last",
          "intact",
          <>
            Newest signed digest: number {last.lastDigest.number}, for the 10 minutes from{" "}
            <Instant at={last.lastDigest.interval} />, signed with key {last.lastDigest.kid}.
          </>,
        )}
      {isComplete &&
        last.unsealedFrom &&
        link(
          "unsealed",
          "withoutDigest",
          <>
            {counted(last.unsealedEntries, "entry", "entries")} after <Instant at={last.unsealedFrom} />{" "}
            {last.unsealedEntries === 1 ? "is" : "are"} not sealed yet, and verified by authentication codes.
          </>,
        )}
    </ol>
  );
}
