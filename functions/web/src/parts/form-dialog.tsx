import {
  Button,
  Dialog,
  DialogActions,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  DialogTrigger,
  makeStyles,
  Spinner,
  Switch,
  tokens,
} from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, isValidElement, type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import type { Operation } from "../api/access.ts";
import { asProblem, type Problem } from "../api/client.ts";
import { changeFinished, dropChanges, onWaiting } from "../api/events.ts";
import { RateLimitNotice } from "../shell/rate-limit-notice.tsx";
import { entriesOf } from "./entries.ts";
import { FormContext, isAbout } from "./fields.tsx";
import { ProblemNotice } from "./problem-notice.tsx";
import { useFrozenWidth } from "./width.ts";

const useStyles = makeStyles({
  title: { overflowWrap: "anywhere" },
  // The colors of a button that deletes something.
  destructive: {
    backgroundColor: tokens.colorStatusDangerBackground3,
    ":hover": { backgroundColor: tokens.colorStatusDangerBackground3Hover },
    ":hover:active": { backgroundColor: tokens.colorStatusDangerBackground3Pressed },
  },
  fields: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    overflowWrap: "anywhere",
    // A select is as wide as the form, whatever the length of its options.
    "& .fui-Field": { gridTemplateColumns: "minmax(0, 1fr)" },
  },
});

export interface FormDialogProps {
  /** The label of the button that opens the dialog, and the dialog's title. */
  title: string;
  /** The object of the operation, such as a rule's name. Shown after the title. */
  about?: string;
  /** The kind of the object, such as "rule". The dialog's title contains it; the button in the object's row does not. */
  kind?: string;
  /** The label of the submit button. */
  action: string;
  /** `primary` for the main action of a view. All other buttons have a border, so that they look like buttons. */
  appearance?: "primary";
  /** State of a setting that is on or off. The dialog is then opened by a switch with this state instead of a button. */
  isOn?: boolean;
  /** The operation that the form calls, as a data attribute for tests. */
  operation?: Operation;
  /**
   * Sends the change. A returned element or string is shown in the dialog. Otherwise, the dialog closes.
   *
   * @throws {Problem} The dialog shows the problem and keeps the input.
   */
  submit(form: FormData): Promise<unknown>;
  /**
   * Loads a preview of the change, which is shown in the form. Any later input hides it. With `isRequired`, the form can be
   * submitted only while a preview is shown.
   */
  preview?: { action: string; isRequired?: boolean; load(form: FormData): Promise<ReactNode> };
  /** The fields, or a description of what happens. */
  children: ReactNode;
}

/** A button that opens a form or confirmation in a dialog. After the change, all queries are refreshed. */
export function FormDialog(props: FormDialogProps) {
  const { title, about, appearance, operation, isOn } = props;
  const [{ isOpen, openCount }, setState] = useState({ isOpen: false, openCount: 0 });
  // When a table becomes a list, its rows unmount, and a dialog in a row would disappear.
  useFrozenWidth(isOpen);
  const setOpen = (isOpen: boolean) => setState((before) => ({ isOpen, openCount: before.openCount + Number(isOpen) }));
  return (
    <Dialog open={isOpen} onOpenChange={(_, data) => setOpen(data.open)}>
      <DialogTrigger disableButtonEnhancement>
        {isOn === undefined ? (
          <Button
            size="small"
            {...(appearance && { appearance })}
            data-operation={operation}
            {...(about !== undefined && { "aria-label": `${title}: ${about}` })}
          >
            {title}
          </Button>
        ) : (
          // The state changes only when the form is saved.
          <Switch
            checked={isOn}
            aria-label={about ?? title}
            data-operation={operation}
            onChange={() => undefined}
            onKeyDown={({ key, currentTarget }) => key === "Enter" && currentTarget.click()}
          />
        )}
      </DialogTrigger>
      <DialogSurface>
        {/* A new key discards the input and the result of the last time that the dialog was open. */}
        <Form key={openCount} {...props} isOpen={isOpen} close={() => setOpen(false)} />
      </DialogSurface>
    </Dialog>
  );
}

/** The content of the dialog: the fields, the preview or the result, the problem of the last request, and the buttons. */
function Form({
  title,
  about,
  kind,
  action,
  submit,
  preview,
  children,
  isOpen,
  close,
}: FormDialogProps & { isOpen: boolean; close(): void }) {
  const styles = useStyles();
  const queries = useQueryClient();
  /** Whether a request is in progress, or the dialog is closing after a change. */
  const [isBusy, setBusy] = useState(false);
  /** Whether the change was sent and succeeded, and the dialog is about to close. */
  const [isSaved, setSaved] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const [shownPreview, showPreview] = useState<ReactNode>();
  /** The result of `submit`, which is shown in place of the fields. */
  const [outcome, setOutcome] = useState<ReactNode>();
  const fullTitle = kind === undefined ? title : `${title} ${kind}`;
  const heading = about === undefined ? fullTitle : `${fullTitle}: ${about}`;
  /** Number of edits. A preview whose request precedes the last edit is outdated. */
  const editCount = useRef(0);
  /** Whether a request is being sent. A ref, because state would change only with the next render. */
  const isSending = useRef(false);
  /** Whether the user closed the dialog, or the form was unmounted. */
  const isGone = useRef(false);
  /** Body members whose validation errors a field shows. */
  const members = useRef(new Set<string>());
  const register = useCallback((member: string) => void members.current.add(member), []);
  useEffect(() => {
    // The form stays mounted during the closing animation.
    isGone.current = !isOpen;
    return () => {
      isGone.current = true;
      // Closing the form cancels a change that waits to be sent.
      dropChanges();
    };
  }, [isOpen]);

  /** Loads and shows the preview, unless the user has edited the form since the request. */
  async function loadPreview(form: FormData) {
    const countBefore = editCount.current;
    const result = await preview!.load(form);
    if (editCount.current === countBefore) showPreview(result);
    setBusy(false);
  }
  /** Sends the change, refreshes the page's data, and shows the result or closes the dialog. */
  async function send(form: FormData) {
    const result = await submit(form);
    const refreshed = queries.invalidateQueries({
      predicate: ({ queryKey: [, path] }) => !UNCHANGED_BY_FORMS.includes(String(path)),
    });
    // A result that is shown only once does not wait for the refresh of lists.
    const isShown = isValidElement(result) || typeof result === "string";
    if (isGone.current) changeFinished({ title: heading, ...(isShown && { outcome: result }) });
    else if (isShown) {
      setOutcome(result);
      setBusy(false);
    } else {
      setSaved(true);
      // The dialog closes without waiting for rate-limited lists.
      await untilDoneOrWaiting(refreshed);
      // The user may have closed and reopened the dialog meanwhile.
      if (!isGone.current) close();
    }
  }
  /** Loads the server's current values. Untouched fields show them; the preview is outdated. */
  async function reload() {
    await queries.invalidateQueries();
    editCount.current++;
    showPreview(undefined);
    setProblem(undefined);
  }
  /** Shows that `work` is in progress, and its problem if it fails. `isChange` is false for a preview. */
  async function run(work: Promise<void>, isChange: boolean) {
    setBusy(true);
    setProblem(undefined);
    try {
      await work;
    } catch (thrown) {
      const failed = asProblem(thrown);
      setProblem(failed);
      setBusy(false);
      // No result is reported for a rate-limited change of a closed form: it was not sent, because the user closed the form.
      if (isGone.current && isChange && failed.status !== 429) changeFinished({ title: heading, problem: failed });
    } finally {
      isSending.current = false;
    }
  }
  function handleSubmit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    // A second submit before the buttons are disabled, or while the dialog closes, is a duplicate.
    if (isSending.current || isBusy) return;
    isSending.current = true;
    const { submitter } = event.nativeEvent as SubmitEvent;
    const isPreview = submitter instanceof HTMLButtonElement && submitter.value === "preview";
    // However the form was submitted, it sends no change before a required preview is shown.
    const isChange = !isPreview && (!preview?.isRequired || shownPreview !== undefined);
    const form = new FormData(event.currentTarget);
    void run(isChange ? send(form) : loadPreview(form), isChange);
  }
  const isOver = outcome !== undefined;
  const needsPreview = preview?.isRequired === true && shownPreview === undefined;
  return (
    <form
      onSubmit={handleSubmit}
      onChange={() => {
        editCount.current++;
        showPreview(undefined);
      }}
    >
      <DialogBody>
        <DialogTitle className={styles.title}>{heading}</DialogTitle>
        <DialogContent className={styles.fields}>
          <FormContext value={{ errors: problem?.errors ?? [], isSaved, register }}>
            {isOver ? <div role="status">{outcome}</div> : children}
          </FormContext>
          {!isOver && shownPreview !== undefined && (
            <div role="status" ref={scrollIntoView}>
              {shownPreview}
            </div>
          )}
          <RequestState
            problem={problem}
            members={members.current}
            isBusy={isBusy}
            isSaved={isSaved}
            reload={() => void reload()}
          />
        </DialogContent>
        <FormButtons
          action={action}
          previewAction={isOver ? undefined : preview?.action}
          needsPreview={needsPreview}
          isOver={isOver}
          isSaved={isSaved}
          isBusy={isBusy}
        />
      </DialogBody>
    </form>
  );
}

/** The problem of the last request, or that a request is in progress. */
function RequestState({
  problem,
  members,
  isBusy,
  isSaved,
  reload,
}: {
  problem: Problem | undefined;
  /** Body members whose validation errors a field shows. */
  members: ReadonlySet<string>;
  isBusy: boolean;
  isSaved: boolean;
  reload(): void;
}) {
  return (
    <>
      {problem && (
        <div ref={scrollIntoView}>
          <ProblemNotice problem={withoutFieldErrors(problem, members)} />
        </div>
      )}
      {problem && CONFLICTS.includes(problem.code) && (
        <div>
          <Button onClick={reload}>Reload</Button> Loads the changes of the other user. Your input is kept.
        </div>
      )}
      {isBusy && (
        <>
          <Spinner
            size="tiny"
            delay={SPINNER_AFTER_MS}
            label={isSaved ? "Saved. Refreshing data" : "Waiting for a response"}
            labelPosition="after"
          />
          {!isSaved && <RateLimitNotice />}
        </>
      )}
    </>
  );
}

/** The buttons of the form: close, preview if it has one, and submit unless a preview must be shown first. */
function FormButtons({
  action,
  previewAction,
  needsPreview,
  isOver,
  isSaved,
  isBusy,
}: {
  action: string;
  previewAction: string | undefined;
  needsPreview: boolean;
  /** Whether the result is shown, so that only the button to close is left. */
  isOver: boolean;
  isSaved: boolean;
  isBusy: boolean;
}) {
  const styles = useStyles();
  const isDestructive = action.startsWith("Delete");
  return (
    <DialogActions fluid>
      <DialogTrigger disableButtonEnhancement>
        <Button>{isOver || isSaved ? "Close" : "Cancel"}</Button>
      </DialogTrigger>
      {previewAction !== undefined && (
        <Button
          type="submit"
          value="preview"
          appearance={needsPreview ? "primary" : "secondary"}
          disabledFocusable={isBusy}
        >
          {previewAction}
        </Button>
      )}
      {!isOver && !needsPreview && (
        <Button
          type="submit"
          appearance="primary"
          className={isDestructive && !isBusy ? styles.destructive : undefined}
          disabledFocusable={isBusy}
        >
          {action}
        </Button>
      )}
    </DialogActions>
  );
}

/** Resolves when `work` has finished or a call waits for the rate limit, whichever comes first. */
const untilDoneOrWaiting = (work: Promise<void>): Promise<void> =>
  new Promise((resolve) => {
    const unsubscribe = onWaiting(() => resolve());
    void work.finally(() => {
      unsubscribe();
      resolve();
    });
  });

/** Delay of the spinner in milliseconds. Most responses arrive sooner, so that no spinner flashes. */
const SPINNER_AFTER_MS = 500;

/** Scrolls to content below a long form. If a field is invalid, focuses that field instead. */
function scrollIntoView(element: HTMLElement | null): void {
  const invalid = element?.closest("form")?.querySelector<HTMLElement>("[aria-invalid=true]");
  if (invalid) invalid.focus();
  else element?.scrollIntoView({ block: "nearest" });
}

/** Returns the problem without the errors that a field shows. */
function withoutFieldErrors(problem: Problem, members: ReadonlySet<string>): Problem {
  const { errors = [] } = problem;
  const others = errors.filter((error) => ![...members].some((member) => isAbout(member, error)));
  if (others.length === errors.length) return problem;
  return { ...problem, title: "Check the highlighted fields", detail: "", errors: others };
}

/** Codes of problems that say another user changed the object first. */
const CONFLICTS: Problem["code"][] = ["preconditionFailed", "conflict", "alreadyExists"];
/** Paths of queries whose data no form changes, so that they are not refreshed after a change. */
const UNCHANGED_BY_FORMS = ["/auth/me", "/system/license/status", "/auth/sso/status"];

/** Returns the text of a field, trimmed. Empty if the form has no such field. */
export const fieldText = (form: FormData, name: string): string => String(form.get(name) ?? "").trim();

/** Returns the text of a field, trimmed, or null if it is empty. */
export const fieldTextOrNull = (form: FormData, name: string): string | null => fieldText(form, name) || null;

/** Returns the value of an `ExpiryField`: null if it was cleared, no member if it was not edited. */
export const fieldExpiry = <N extends string>(form: FormData, name: N): Partial<Record<N, string | null>> =>
  form.has(name)
    ? ({ [name]: fieldText(form, name) ? `${fieldText(form, name)}T00:00:00Z` : null } as Record<N, string | null>)
    : {};

/** Returns the entries of a `ListField`, or of a text with whitespace, commas or semicolons between the entries. */
export const fieldEntries = (form: FormData, name: string): string[] =>
  form.getAll(name).flatMap((text) => entriesOf(String(text)));

/**
 * Returns the numbers of a field that lists several.
 *
 * @throws {Problem} at the field if an entry is not a number.
 */
export function fieldNumbers(form: FormData, name: string, unit: string): number[] {
  const entries = fieldEntries(form, name);
  const wrong = entries.find((entry) => Number.isNaN(Number(entry)));
  if (wrong === undefined) return entries.map(Number);
  const message = `"${wrong}" is not a number of ${unit}.`;
  const problem: Problem = {
    type: "about:blank",
    title: "The request is invalid",
    status: 400,
    detail: message,
    instance: "",
    code: "invalidRequest",
    errors: [{ path: `body.${name}`, message }],
  };
  throw problem;
}

/** Returns the selected option of a field, or the first of the allowed options if the form has none. */
export const fieldChoice = <const T extends string>(form: FormData, name: string, among: readonly T[]): T =>
  among.find((option) => option === form.get(name)) ?? among[0]!;

/** Returns the members of a request body that are not null, undefined or an empty string, so that the API's defaults apply. */
export const withoutEmpty = <T extends Record<string, unknown>>(
  members: T,
): Partial<{ [K in keyof T]: NonNullable<T[K]> }> =>
  Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ) as never;
