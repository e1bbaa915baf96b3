import { Link, MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { useCoverage } from "../../parts/status-queries.ts";
import { View } from "../../parts/view.tsx";

type Check = Schemas["PermissionsCheck"];
type Call = Check["calls"][number];

/** The last check since the page was loaded. The service doesn't store checks. */
let lastCheck: Check | undefined;

/** The Permissions page: checks what the service's identity may do, and shows the missing roles. */
export default function Permissions() {
  const [check, setCheck] = useState(lastCheck);
  return (
    <View title="Permissions">
      <Text>
        Checks whether the service's identity may do what the features of the service need. Takes up to two minutes. The
        check changes no resources and reads no secret values.
      </Text>
      {!check && <NotChecked />}
      <div>
        <Operate
          operation="checkPermissions"
          title="Check permissions"
          action="Check permissions"
          appearance="primary"
          submit={async (_, run) => {
            lastCheck = await run({});
            setCheck(lastCheck);
          }}
        >
          <Text>
            Makes each outgoing call of the service once, on a sample of subscriptions and vaults. This can take two
            minutes.
          </Text>
        </Operate>
      </div>
      {check && <Result of={check} />}
    </View>
  );
}

/** The gaps that the last scans and discoveries found, shown without a check. */
function NotChecked() {
  // The response that the navigation has already read.
  const { data: coverage } = useCoverage({ staleTime: 300_000 });
  return (
    <MessageBar intent={coverage && !coverage.complete ? "warning" : "info"} layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>Not checked since you opened this page.</MessageBarTitle> The service doesn't keep the results
        of checks.{" "}
        {coverage &&
          (coverage.complete ? (
            "The last scans could read everything. A check also covers rotation, sync and alerts."
          ) : (
            <>
              The last scans found <Link href={createHref("/vaults")}>{counted(coverage.gapsTotal, "gap")}</Link> that a
              missing permission or a blocked network can cause:
              <ul>
                {coverage.gaps.map(({ kind, name, message }) => (
                  <li key={`${kind} ${name}`}>
                    <bdi>{name}</bdi>: {message}
                  </li>
                ))}
              </ul>
              {coverage.gaps.length < coverage.gapsTotal &&
                `${counted(coverage.gapsTotal - coverage.gaps.length, "further gap")} on the Vaults page. `}
              To see the commands that grant what is missing, and to check rotation, sync and alerts too, select Check
              permissions.
            </>
          ))}
      </MessageBarBody>
    </MessageBar>
  );
}

/** Outcomes that need no attention. */
const QUIET = new Set<Call["outcome"]>(["works", "off"]);

/** The result of a check: its sample, the calls that need attention, and those that work or are off. */
function Result({ of: { ok, checkedAt, sample, calls } }: { of: Check }) {
  const needingAttention = calls.filter(({ outcome }) => !QUIET.has(outcome));
  const quiet = calls.filter(({ outcome }) => QUIET.has(outcome));
  return (
    <>
      <div role="status">
        <MessageBar intent={ok ? "success" : "error"} layout="multiline">
          <MessageBarBody>
            {ok
              ? "Everything that is needed works."
              : `Something that is needed is missing: ${counted(needingAttention.length, "call needs", "calls need")} attention.`}
          </MessageBarBody>
        </MessageBar>
        <Text block>
          Checked <Instant at={checkedAt} relative />: {sample.subscriptions.checked} of{" "}
          {counted(sample.subscriptions.total, "subscription")}, and {sample.vaults.checked} of their{" "}
          {counted(sample.vaults.total, "vault")}.
        </Text>
      </div>
      <Card title="Needs attention">
        {needingAttention.length === 0 ? (
          <Text>No call needs attention.</Text>
        ) : (
          <DataTable
            items={needingAttention}
            columns={[...COLUMNS, DETAILS]}
            keyOf={({ id }) => id}
            label="Needs attention"
          />
        )}
      </Card>
      <Card title="Works, or is off">
        <DataTable items={quiet} columns={COLUMNS} keyOf={({ id }) => id} label="Works, or is off" />
      </Card>
    </>
  );
}

const OUTCOMES: Record<Call["outcome"], string> = {
  works: "Works",
  off: "Off",
  notProven: "Not proven",
  answeredWithBlanks: "Answered with blanks",
  permissionMissing: "Permission missing",
  unreachable: "Unreachable",
  failed: "Failed",
};

const COLUMNS: Column<Call>[] = [
  { title: "Feature", cell: ({ feature }) => feature },
  { title: "Call", cell: ({ call }) => call },
  {
    title: "Result",
    cell: ({ outcome, optional }) => OUTCOMES[outcome] + (optional && !QUIET.has(outcome) ? " (optional)" : ""),
  },
  { title: "Permissions", cell: ({ permissions }) => permissions.join(", ") },
];

const DETAILS: Column<Call> = {
  title: "Details",
  wide: true,
  cell: ({ findings }) =>
    findings
      .filter(({ outcome }) => !QUIET.has(outcome))
      .map(({ resource, detail, remedy, command }) => (
        <div key={resource}>
          <Text block>
            {resource}: {detail} {remedy}
          </Text>
          {command !== null && <Copyable label="Command" text={command} />}
        </div>
      )),
};
