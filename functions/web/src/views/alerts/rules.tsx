import { Link, Text } from "@fluentui/react-components";
import type { Call } from "../../api/calls.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { Preview } from "./preview.tsx";
import { RuleFields, ruleOf } from "./rule-form.tsx";
import { hasThresholds, METHODS, sent, TYPES } from "./rule-words.ts";

type Rule = Schemas["AlertRule"];

/** Who is told of what. */
export function Rules() {
  const list = api.useInfiniteQuery("get", "/alerts/rules", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const all = list.data?.pages.flatMap(({ items }) => items) ?? [];
  const columns: Column<Rule>[] = [
    {
      title: "Name",
      cell: ({ id, name, enabled }) => (
        <>
          <Link href={createHref(`/alerts/rules/${id}`, {})}>{name}</Link>
          {enabled ? "" : " (off)"}
        </>
      ),
    },
    { title: "When", cell: ({ alertType }) => TYPES[alertType] ?? alertType },
    { title: "Days before", cell: ({ alertType, thresholds }) => hasThresholds(alertType) && thresholds.join(", ") },
    {
      title: "To",
      cell: ({ deliveryMethod, recipients, webhookHost }) =>
        deliveryMethod === "email" ? recipients.join(", ") : `${METHODS[deliveryMethod]} ${webhookHost ?? ""}`,
    },
    { title: "How", cell: sent },
    { title: "", cell: (rule) => <RuleActions rule={rule} others={all.filter(({ id }) => id !== rule.id)} /> },
  ];
  return (
    <>
      <NewRule others={all} />
      <PagedTable
        of={list}
        columns={columns}
        keyOf={({ id }) => id}
        label="Rules"
        none="Nobody is told of anything yet."
      />
    </>
  );
}

function NewRule({ others }: { others: Rule[] }) {
  return (
    <div>
      <Operate
        operation="createAlertRule"
        title="New rule"
        action="Create"
        preview={WOULD_TELL}
        submit={async (form, create) => webhookSecret(await create({ body: ruleOf(form) }))}
      >
        <RuleFields others={others} />
      </Operate>
    </div>
  );
}

/** What may be done to a rule by whoever looks at it. */
export function RuleActions({ rule, others }: { rule: Rule; others: Rule[] }) {
  const { id, name, enabled, etag } = rule;
  const params = { path: { rule_id: id } };
  const held = { ...params, header: { "If-Match": etag } };
  return (
    <>
      <Operate
        operation="testAlertRule"
        title="Test"
        about={name}
        action="Send"
        appearance="transparent"
        submit={async (_, test) => <TestOutcome of={await test({ params })} />}
      >
        <Text>Sends an example as the rule would.</Text>
      </Operate>
      <Operate
        operation="updateAlertRule"
        title="Change"
        about={name}
        action="Change"
        appearance="transparent"
        preview={{
          operation: "previewAlertRuleChange",
          action: WOULD_TELL.action,
          load: async (form, preview) => <Preview of={await preview({ params, body: toldBy(form) })} />,
        }}
        submit={async (form, change) => webhookSecret(await change({ params: held, body: ruleOf(form) }))}
      >
        <RuleFields rule={rule} others={others} />
      </Operate>
      <Operate
        operation="updateAlertRule"
        title={enabled ? "Switch off" : "Switch on"}
        about={name}
        action={enabled ? "Switch off" : "Switch on"}
        appearance="transparent"
        submit={(_, change) => change({ params: held, body: { enabled: !enabled } })}
      >
        <Text>{enabled ? "It tells nobody until it is switched on again." : "It tells again."}</Text>
      </Operate>
      {rule.deliveryMethod === "webhook" && (
        <Operate
          operation="rotateAlertRuleSecret"
          title="New key"
          about={name}
          action="Make a new key"
          appearance="transparent"
          submit={async (_, renew) => webhookSecret(await renew({ params: held }))}
        >
          <Text>Its webhooks are signed with another key from then on. The receiver must know it.</Text>
        </Operate>
      )}
      <Operate
        operation="deleteAlertRule"
        title="Delete"
        about={name}
        action="Delete"
        appearance="transparent"
        submit={(_, remove) => remove({ params: held })}
      >
        <Text>It tells nobody any more. What it told stays in the history.</Text>
      </Operate>
    </>
  );
}

/** How it is delivered makes no difference to what it tells, so what was typed of that is not sent. */
function toldBy(form: FormData) {
  const { webhookUrl, credentials, escalation, ...rule } = ruleOf(form);
  return rule;
}

const WOULD_TELL = {
  operation: "previewNewAlertRule",
  action: "Show what it would tell",
  load: async (form: FormData, preview: Call<"previewNewAlertRule">) => (
    <Preview of={await preview({ body: toldBy(form) })} />
  ),
} as const;

const webhookSecret = ({ webhookSecret }: Schemas["AlertRuleWithSecret"]) =>
  webhookSecret === undefined ? null : (
    <Copyable label="The key that signs the rule's webhooks is shown only now." text={webhookSecret} />
  );

const TestOutcome = ({ of: { message, receiver } }: { of: Schemas["AlertTestResult"] }) => (
  <>
    <Text block>{message}</Text>
    {receiver && (
      <Text block>
        The receiver answered {receiver.status}: {receiver.body}
      </Text>
    )}
  </>
);
