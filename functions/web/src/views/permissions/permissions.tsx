import { Text } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { View } from "../../parts/view.tsx";

type Check = Schemas["PermissionsCheck"];
type Call = Check["calls"][number];

/** The Permissions page: checks what the service's identity may do, and shows what is missing. */
export default function Permissions() {
  const [check, setCheck] = useState<Check>();
  return (
    <View title="Permissions">
      <Text>
        Checks whether the service may do what its features need. Nothing is changed, and no secret values are read.
      </Text>
      <div>
        <Operate
          operation="checkPermissions"
          title="Check permissions"
          action="Check permissions"
          submit={async (_, run) => setCheck(await run({}))}
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

/** Outcomes that need no attention. */
const QUIET = new Set<Call["outcome"]>(["works", "off"]);

/** The result of a check: its sample, the calls that need attention, and those that work or are off. */
function Result({ of: { ok, checkedAt, sample, calls } }: { of: Check }) {
  const needingAttention = calls.filter(({ outcome }) => !QUIET.has(outcome));
  const quiet = calls.filter(({ outcome }) => QUIET.has(outcome));
  return (
    <>
      <div role="status">
        <Text block weight="semibold">
          {ok ? "Everything that is needed works." : "Something that is needed is missing."}
        </Text>
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
