import { Divider } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, LongField, NumberField, SecretField, TextField } from "../../parts/fields.tsx";
import { chosen, given, typed, typedList } from "../../parts/form-dialog.tsx";
import { FilterFields, filtersOf } from "./filter-fields.tsx";
import { filtersFor, hasThresholds, isFollowed, METHODS, TYPES } from "./rule-words.ts";

type Rule = Schemas["AlertRule"];
type NewRule = Schemas["NewAlertRule"];
type Method = Rule["deliveryMethod"];

const WHEN = { immediate: "At once", daily: "In a daily digest", weekly: "In a weekly digest" } as const;
const ESCALATIONS = { none: "Nobody", recipients: "These addresses", rule: "Where another rule tells" } as const;
type EscalatesTo = keyof typeof ESCALATIONS;

/** @param props.rule - The rule that is changed; none for a new one. */
export function RuleFields({ rule, others }: { rule?: Rule; others: Rule[] }) {
  // What nobody has chosen here follows what somebody else sets.
  const [chosenType, setType] = useState<Rule["alertType"]>();
  const [chosenMethod, setMethod] = useState<Method>();
  const type = chosenType ?? rule?.alertType ?? "expiration";
  const method = chosenMethod ?? rule?.deliveryMethod ?? "email";
  return (
    <>
      <TextField name="name" label="Name" required defaultValue={rule?.name ?? ""} />
      <ChoiceField
        name="alertType"
        label="Tells when"
        options={TYPES}
        defaultValue={rule?.alertType ?? "expiration"}
        choose={setType}
      />
      {hasThresholds(type) && (
        <TextField
          name="thresholds"
          label="Days before the end"
          hint="Several, such as 30, 7, 1. Each asset is told of once at each."
          required
          defaultValue={rule && rule.thresholds.length > 0 ? rule.thresholds.join(", ") : "30, 7, 1"}
        />
      )}
      <FilterFields {...(rule && { filters: rule.filters })} of={filtersFor(type)} />
      <Divider>To whom</Divider>
      <ChoiceField
        name="deliveryMethod"
        label="Told by"
        options={METHODS}
        defaultValue={rule?.deliveryMethod ?? "email"}
        choose={setMethod}
      />
      <Address method={method} {...(rule && { rule })} />
      <ChoiceField name="mode" label="When it is sent" options={WHEN} defaultValue={modeOf(rule)} />
      <CheckField
        name="tellRecovery"
        label="Also tells when what it told of has ended"
        defaultChecked={rule?.tellRecovery ?? true}
      />
      {isFollowed(type) && <Escalation others={others} {...(rule && { rule })} />}
    </>
  );
}

function Escalation({ rule, others }: { rule?: Rule; others: Rule[] }) {
  const escalation = rule?.escalation ?? null;
  const [chosenStep, escalateTo] = useState<EscalatesTo>();
  const saved = escalation === null ? "none" : escalation.ruleId === null ? "recipients" : "rule";
  const escalates = chosenStep ?? saved;
  return (
    <>
      <Divider>When nobody acknowledges</Divider>
      <ChoiceField name="escalates" label="Told then" options={ESCALATIONS} defaultValue={saved} choose={escalateTo} />
      {escalates !== "none" && (
        <NumberField
          name="afterDays"
          member="escalation.afterDays"
          label="After days"
          required
          min={1}
          max={90}
          defaultValue={String(escalation?.afterDays ?? 3)}
        />
      )}
      {escalates === "recipients" && (
        <LongField
          name="escalationRecipients"
          member="escalation.recipients"
          label="E-mail addresses"
          required
          defaultValue={escalation?.recipients.join("\n") ?? ""}
        />
      )}
      {escalates === "rule" && (
        <ChoiceField
          name="escalationRule"
          member="escalation.ruleId"
          label="Rule"
          options={Object.fromEntries(others.map(({ id, name }) => [id, name]))}
          defaultValue={escalation?.ruleId ?? ""}
        />
      )}
    </>
  );
}

const modeOf = (rule?: Rule): keyof typeof WHEN =>
  rule?.deliveryMode === "digest" ? rule.digestFrequency : "immediate";

const KEPT = "It is kept in the service's own key vault and never shown.";

/** Where a rule tells. Addresses and credentials that are set stay where nothing is typed. */
function Address({ method, rule }: { method: Method; rule?: Rule }) {
  const isSet = rule !== undefined && rule.deliveryMethod === method && rule.webhookHost !== null;
  const unchanged = isSet ? ` Empty: ${rule.webhookHost} as it is.` : "";
  if (method === "email")
    return (
      <LongField
        name="recipients"
        label="E-mail addresses"
        hint="An owner who is known gets what is theirs; these get the rest."
        required
        defaultValue={rule?.recipients.join("\n") ?? ""}
      />
    );
  return (
    <>
      <TextField
        name="webhookUrl"
        label={method === "serviceNow" ? "Address of the instance" : "Address"}
        type="url"
        hint={method === "pagerDuty" ? "Only where it is not PagerDuty's own, such as in the EU." : KEPT + unchanged}
        required={method !== "pagerDuty" && !isSet}
      />
      {method === "pagerDuty" && (
        <SecretField
          name="routingKey"
          member="credentials.routingKey"
          label="Integration key of the Events API v2"
          hint={KEPT + unchanged}
          required={!isSet}
        />
      )}
      {method === "serviceNow" && (
        <>
          <TextField
            name="username"
            member="credentials.username"
            label="Username"
            hint={`With a password, or with OAuth.${unchanged}`}
          />
          <SecretField name="password" member="credentials.password" label="Password" hint={KEPT} />
          <TextField name="clientId" member="credentials.clientId" label="Client id of OAuth" />
          <SecretField
            name="clientSecret"
            member="credentials.clientSecret"
            label="Client secret of OAuth"
            hint={KEPT}
          />
        </>
      )}
    </>
  );
}

/** What the form says, for a new rule and for a change alike. */
export function ruleOf(form: FormData): NewRule & { deliveryMethod: Method } {
  const alertType = chosen(form, "alertType", Object.keys(TYPES) as Rule["alertType"][]);
  const deliveryMethod = chosen(form, "deliveryMethod", Object.keys(METHODS) as Method[]);
  const mode = chosen(form, "mode", ["immediate", "daily", "weekly"]);
  const credentials = given(
    Object.fromEntries(
      ["routingKey", "username", "password", "clientId", "clientSecret"].map((name) => [name, typed(form, name)]),
    ),
  );
  return {
    name: typed(form, "name"),
    alertType,
    ...(hasThresholds(alertType) && { thresholds: typedList(form, "thresholds").map(Number) }),
    filters: filtersOf(form),
    deliveryMethod,
    deliveryMode: mode === "immediate" ? mode : "digest",
    ...(mode !== "immediate" && { digestFrequency: mode }),
    ...(deliveryMethod === "email" && { recipients: typedList(form, "recipients") }),
    ...given({ webhookUrl: typed(form, "webhookUrl") }),
    ...(Object.keys(credentials).length > 0 && { credentials }),
    tellRecovery: form.has("tellRecovery"),
    escalation: escalationOf(form),
  };
}

function escalationOf(form: FormData): Schemas["NewAlertEscalation"] | null {
  const to = chosen(form, "escalates", ["none", "recipients", "rule"]);
  if (to === "none") return null;
  const afterDays = Number(typed(form, "afterDays"));
  if (to === "rule") return { afterDays, ruleId: typed(form, "escalationRule") };
  return { afterDays, recipients: typedList(form, "escalationRecipients") };
}
