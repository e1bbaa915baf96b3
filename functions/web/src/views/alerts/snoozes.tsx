import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";
import { FilterFields, filtersOf } from "./filter-fields.tsx";
import { filtersText, SNOOZE_FILTERS } from "./rule-texts.ts";

/** Active snoozes. */
export function Snoozes() {
  const list = api.useInfiniteQuery("get", "/alerts/snoozes", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const rules = api.useInfiniteQuery("get", "/alerts/rules", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const names = Object.fromEntries(
    (rules.data?.pages ?? []).flatMap(({ items }) => items.map(({ id, name }) => [id, name])),
  );
  const columns: Column<Schemas["AlertSnooze"]>[] = [
    { title: "Snoozed", cell: ({ assetId, filters }) => subjectOf(assetId, filters) },
    { title: "Rule", cell: ({ ruleId }) => (ruleId === null ? "All rules" : (names[ruleId] ?? ruleId)) },
    { title: "Reason", cell: ({ reason }) => reason },
    { title: "Until", cell: ({ until }) => <Instant at={until} /> },
    { title: "Created by", cell: ({ createdBy }) => createdBy },
    {
      title: "",
      cell: ({ id, assetId, filters }) => (
        <Operate
          operation="deleteAlertSnooze"
          title="End snooze"
          about={subjectOf(assetId, filters)}
          action="End snooze"
          appearance="transparent"
          submit={(_, end) => end({ params: { path: { snooze_id: id } } })}
        >
          <Text>Rules notify about it again.</Text>
        </Operate>
      ),
    },
  ];
  return (
    <>
      <div>
        <NewSnooze names={names} /> <SnoozeAll names={names} />
      </div>
      <PagedTable
        of={list}
        columns={columns}
        keyOf={({ id }) => id}
        label="Snoozes"
        empty="No snoozes. Snooze an asset to stop its notifications for a while."
      />
    </>
  );
}

const subjectOf = (assetId: string | null, filters: Schemas["AlertSnooze"]["filters"]): string =>
  assetId ?? (filtersText(filters) || "Everything");

type Names = Record<string, string>;

function NewSnooze({ names }: { names: Names }) {
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze an asset"
      action="Snooze"
      submit={(form, create) =>
        create({ body: { ...snoozeOf(form), ruleId: typed(form, "ruleId"), assetId: typed(form, "assetId") } })
      }
    >
      <TextField name="assetId" label="Asset" hint="Asset ID, such as kv-shop.secret.smtp" required />
      <ChoiceField name="ruleId" label="Rule" options={names} />
      <SnoozeFields />
    </Operate>
  );
}

function SnoozeAll({ names }: { names: Names }) {
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze by filter"
      action="Snooze"
      submit={(form, create) =>
        create({
          body: { ...snoozeOf(form), filters: filtersOf(form), ...given({ ruleId: typed(form, "ruleId") }) },
        })
      }
    >
      <FilterFields of={SNOOZE_FILTERS} />
      <ChoiceField name="ruleId" label="Rule" options={{ "": "All rules", ...names }} />
      <SnoozeFields />
    </Operate>
  );
}
