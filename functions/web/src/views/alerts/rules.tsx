import { Link, Text } from "@fluentui/react-components";
import type { Call } from "../../api/calls.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { METHODS } from "../../parts/notification-texts.ts";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { Preview } from "./preview.tsx";
import { RuleFields, ruleOf } from "./rule-form.tsx";
import { frequencyOf, hasThresholds, TYPES } from "./rule-texts.ts";

type Rule = Schemas["AlertRule"];

/** The card of the Alerts page with the table of rules, their actions, and the form of a new rule. */
export function Rules() {
  const list = api.useInfiniteQuery("get", "/alerts/rules", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const all = list.data?.pages.flatMap(({ items }) => items) ?? [];
  const columns: Column<Rule>[] = [
    {
      title: "Name",
      cell: ({ id, name, enabled }) => (
        <>
          <Link href={createHref(`/alerts/rules/${id}`)}>{name}</Link>
          {enabled ? "" : " (disabled)"}
          <div>
            <Link href={createHref(`/alerts/rules/${id}`)}>Show open alerts</Link>
          </div>
        </>
      ),
    },
    { title: "Event", cell: ({ alertType }) => TYPES[alertType] ?? alertType },
    {
      title: "Days before expiry",
      cell: ({ alertType, thresholds }) => hasThresholds(alertType) && thresholds.join(", "),
    },
    {
      title: "Recipients",
      cell: ({ deliveryMethod, recipients, webhookHost }) =>
        deliveryMethod === "email" ? recipients.join(", ") : `${METHODS[deliveryMethod]} ${webhookHost ?? ""}`,
    },
    { title: "Frequency", cell: frequencyOf },
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
        empty="No alert rules yet, so no notifications are sent. Create a rule to be notified before secrets, keys and certificates expire."
      />
    </>
  );
}

/** The button that creates a rule. */
function NewRule({ others }: { others: Rule[] }) {
  return (
    <div>
      <Operate
        operation="createAlertRule"
        title="Create rule"
        action="Create rule"
        preview={PREVIEW}
        submit={async (form, create) => webhookSecret(await create({ body: ruleOf(form) }))}
      >
        <RuleFields others={others} />
      </Operate>
    </div>
  );
}

/** The buttons of a rule. Each is shown only if the user can call its operation. */
export function RuleActions({ rule, others }: { rule: Rule; others: Rule[] }) {
  const { id, name, enabled, etag } = rule;
  const params = { path: { rule_id: id } };
  const conditionalParams = { ...params, header: { "If-Match": etag } };
  return (
    <ButtonRow>
      <Operate
        operation="testAlertRule"
        title="Send test"
        kind="notification"
        about={name}
        action="Send test notification"
        submit={async (_, test) => <TestOutcome of={await test({ params })} />}
      >
        <Text>Sends an example notification to the rule's recipients.</Text>
      </Operate>
      <Operate
        operation="updateAlertRule"
        title="Edit"
        kind="rule"
        about={name}
        action="Save rule"
        preview={{
          operation: "previewAlertRuleChange",
          action: PREVIEW.action,
          load: async (form, preview) => <Preview of={await preview({ params, body: withoutDelivery(form) })} />,
        }}
        submit={async (form, change) => webhookSecret(await change({ params: conditionalParams, body: ruleOf(form) }))}
      >
        <RuleFields rule={rule} others={others} />
      </Operate>
      <Operate
        operation="updateAlertRule"
        title={enabled ? "Disable" : "Enable"}
        kind="rule"
        about={name}
        action={enabled ? "Disable rule" : "Enable rule"}
        submit={(_, change) => change({ params: conditionalParams, body: { enabled: !enabled } })}
      >
        <Text>
          {enabled ? "The rule sends no alerts until you enable it again." : "The rule sends alerts again from now on."}
        </Text>
      </Operate>
      {rule.deliveryMethod === "webhook" && (
        <Operate
          operation="rotateAlertRuleSecret"
          title="Rotate signing key"
          about={name}
          action="Rotate signing key"
          submit={async (_, renew) => webhookSecret(await renew({ params: conditionalParams }))}
        >
          <Text>
            The service signs webhooks with a new key immediately. Then enter the new key at the receiver, because the
            old key stops working. You can't undo this.
          </Text>
        </Operate>
      )}
      <Operate
        operation="deleteAlertRule"
        title="Delete rule"
        about={name}
        action="Delete rule"
        submit={(_, remove) => remove({ params: conditionalParams })}
      >
        <Text>The rule stops sending alerts. Past alerts stay in the history. You can't undo this.</Text>
      </Operate>
    </ButtonRow>
  );
}

/** Returns the rule without its delivery settings: a preview does not depend on them, so their secrets are not sent. */
function withoutDelivery(form: FormData) {
  const { webhookUrl, credentials, escalation, ...rule } = ruleOf(form);
  return rule;
}

/** The preview of a new rule. It is optional, unlike that of a rotation. */
const PREVIEW = {
  operation: "previewNewAlertRule",
  action: "Preview alerts",
  load: async (form: FormData, preview: Call<"previewNewAlertRule">) => (
    <Preview of={await preview({ body: withoutDelivery(form) })} />
  ),
} as const;

/** Returns the signing key of a rule's webhooks, if the response contains a new one. The API returns a key only once. */
const webhookSecret = ({ webhookSecret }: Schemas["AlertRuleWithSecret"]) =>
  webhookSecret === undefined ? null : (
    <Copyable
      label="Signing key for the rule's webhooks. Copy the key now: it is shown only once."
      text={webhookSecret}
    />
  );

/** The result of a test notification. A webhook also has the response of its receiver. */
const TestOutcome = ({ of: { message, receiver } }: { of: Schemas["AlertTestResult"] }) => (
  <>
    <Text block>{message}</Text>
    {receiver && (
      <Text block>
        Response of the receiver: {receiver.status} {receiver.body}
      </Text>
    )}
  </>
);
