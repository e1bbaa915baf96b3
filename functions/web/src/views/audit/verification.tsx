import { Button, MessageBar, MessageBarBody, makeStyles, ProgressBar, Text, tokens } from "@fluentui/react-components";
import { type ReactNode, useEffect, useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Failure } from "../../parts/answer.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR } from "../../parts/paged-table.tsx";
import { FINDINGS } from "./words.ts";

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
  open: { ":before": { backgroundColor: tokens.colorNeutralStroke1 } },
});

/** Checks the chain of signed digests when somebody asks, since it reads the whole log. */
export function Verification() {
  const [isAsked, ask] = useState(false);
  if (isAsked) return <Result />;
  return (
    <div>
      <Button onClick={() => ask(true)}>Verify the log</Button>
    </div>
  );
}

/** A long log is checked part by part. */
function Result() {
  const parts = api.useInfiniteQuery("get", "/audit/verify", { params: { query: {} } }, BY_CURSOR);
  const { data, hasNextPage, isFetching, error, fetchNextPage } = parts;
  useEffect(() => {
    if (hasNextPage && !isFetching && !error) void fetchNextPage();
  }, [hasNextPage, isFetching, error, fetchNextPage]);
  const pages: Part[] = data?.pages ?? [];
  const entries = sum(pages, (part) => part.entries);
  const isOver = data !== undefined && !hasNextPage;
  return (
    <>
      <Failure of={parts} />
      <div role="status">
        {!isOver && !error && (
          <>
            <Text>{entries.toLocaleString()} entries checked</Text>
            <ProgressBar />
          </>
        )}
        {isOver && <Verdict parts={pages} />}
      </div>
      {pages.length > 0 && <Chain parts={pages} isOver={isOver} />}
    </>
  );
}

const sum = (parts: Part[], of: (part: Part) => number): number => parts.reduce((total, part) => total + of(part), 0);

function Verdict({ parts }: { parts: Part[] }) {
  const findings = sum(parts, (part) => part.findingsTotal);
  const [intent, text] = parts.some(({ sealing }) => sealing === "notConfigured")
    ? (["warning", "Nothing is sealed, so nothing can be verified: AUDIT_SIGNING_KEYS is not set."] as const)
    : parts.every(({ intact }) => intact)
      ? (["success", "The log is whole: nothing that is sealed was changed, removed or inserted."] as const)
      : (["error", `The log is not whole: ${findings.toLocaleString()} findings.`] as const);
  return (
    <MessageBar intent={intent} layout="multiline">
      <MessageBarBody>{text}</MessageBarBody>
    </MessageBar>
  );
}

/** From the beginning of the log to what is not sealed yet. */
function Chain({ parts, isOver }: { parts: Part[]; isOver: boolean }) {
  const styles = useStyles();
  const link = (key: string, kind: "whole" | "broken" | "open", children: ReactNode) => (
    <li key={key} className={`${styles.link} ${kind === "whole" ? "" : styles[kind]}`}>
      {children}
    </li>
  );
  const [first, last] = [parts[0]!, parts.at(-1)!];
  return (
    <ol className={styles.chain} aria-label="The chain of digests">
      {first.beginning &&
        link(
          "beginning",
          "whole",
          <>
            The log begins <Instant at={first.beginning} />.
          </>,
        )}
      {parts
        .flatMap(({ purges }) => purges)
        .map(({ from, to, entries, actor, purgedAt }) =>
          link(
            `purge ${from}`,
            "open",
            <>
              {entries.toLocaleString()} entries from <Instant at={from} /> to <Instant at={to} /> were removed by
              retention, by {actor}, <Instant at={purgedAt} />.
            </>,
          ),
        )}
      {parts.map(({ checkedFrom, checkedTo, digests, entries, intact, findings }) =>
        checkedFrom === null || checkedTo === null
          ? null
          : link(
              checkedFrom,
              intact ? "whole" : "broken",
              <>
                <Instant at={checkedFrom} /> to <Instant at={checkedTo} />: {digests.toLocaleString()} digests over{" "}
                {entries.toLocaleString()} entries {intact ? "hold" : "do not all hold"}.
                {findings.length > 0 && (
                  <ul>
                    {findings.map(({ kind, entryId, interval, detail }) => (
                      <li key={`${kind} ${entryId} ${interval} ${detail}`}>
                        {FINDINGS[kind]}
                        {interval !== undefined && (
                          <>
                            , in the ten minutes from <Instant at={interval} />
                          </>
                        )}
                        : {detail}
                        {entryId !== undefined && ` Its id is ${isolated(entryId)}.`}
                      </li>
                    ))}
                  </ul>
                )}
              </>,
            ),
      )}
      {isOver &&
        last.lastDigest &&
        link(
          "last",
          "whole",
          <>
            The last digest is number {last.lastDigest.number}, of <Instant at={last.lastDigest.interval} />, signed
            with the key {last.lastDigest.kid}.
          </>,
        )}
      {isOver &&
        last.unsealedFrom &&
        link(
          "unsealed",
          "open",
          <>
            What came after <Instant at={last.unsealedFrom} /> is not sealed yet.
          </>,
        )}
    </ol>
  );
}
