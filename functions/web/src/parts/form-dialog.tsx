import {
  Button,
  type ButtonProps,
  Dialog,
  DialogActions,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  DialogTrigger,
  makeStyles,
  Spinner,
  tokens,
} from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, isValidElement, type ReactNode, useEffect, useRef, useState } from "react";
import type { Operation } from "../api/access.ts";
import { asProblem, type Problem } from "../api/client.ts";
import { doneUnseen, dropChanges, onWaiting } from "../api/events.ts";
import { Waiting } from "../shell/waiting.tsx";
import { FormContext } from "./fields.tsx";
import { ProblemNotice } from "./problem-notice.tsx";
import { useHeldWidth } from "./width.ts";

const useStyles = makeStyles({
  title: { overflowWrap: "anywhere" },
  fields: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    overflowWrap: "anywhere",
    // A choice is as wide as the form, however long its words are.
    "& .fui-Field": { gridTemplateColumns: "minmax(0, 1fr)" },
  },
});

export interface FormDialogProps {
  /** On the button that opens it, and as its title. */
  title: string;
  /** What it is about, where its title does not say it; after the title. */
  about?: string;
  /** On the button that does it. */
  action: string;
  appearance?: ButtonProps["appearance"];
  /** What the button calls, for whoever looks at the page from outside. */
  operation?: Operation;
  /**
   * What it answers is shown, if it is an element or text; the dialog is closed otherwise.
   *
   * @throws {Problem} which is shown; the dialog stays open then, with what was typed.
   */
  submit(form: FormData): Promise<unknown>;
  /** What would happen, shown before it does; what is typed after that takes it away again. */
  preview?: { action: string; first?: boolean; load(form: FormData): Promise<ReactNode> };
  /** The fields, or what is about to happen. */
  children: ReactNode;
}

/** A button, and what it asks for before it does something. Afterwards what is shown is read again. */
export function FormDialog(props: FormDialogProps) {
  const { title, about, appearance = "secondary", operation } = props;
  const [{ isOpen, times }, set] = useState({ isOpen: false, times: 0 });
  // The row of a table goes when the table becomes a list, and its dialog with it.
  useHeldWidth(isOpen);
  const open = (isOpen: boolean) => set((before) => ({ isOpen, times: before.times + Number(isOpen) }));
  return (
    <Dialog open={isOpen} onOpenChange={(_, data) => open(data.open)}>
      <DialogTrigger disableButtonEnhancement>
        <Button
          size="small"
          appearance={appearance}
          data-operation={operation}
          {...(about !== undefined && { "aria-label": `${title}: ${about}` })}
        >
          {title}
        </Button>
      </DialogTrigger>
      <DialogSurface>
        <Form key={times} {...props} isOpen={isOpen} close={() => open(false)} />
      </DialogSurface>
    </Dialog>
  );
}

function Form({
  title,
  about,
  action,
  submit,
  preview,
  children,
  isOpen,
  close,
}: FormDialogProps & { isOpen: boolean; close(): void }) {
  const styles = useStyles();
  const queries = useQueryClient();
  const [isBusy, setBusy] = useState(false);
  const [isSaved, setSaved] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const [shown, show] = useState<ReactNode>();
  const [outcome, setOutcome] = useState<ReactNode>();
  const heading = about === undefined ? title : `${title}: ${about}`;
  /** How often something was typed: what was looked at before is not what would be done. */
  const changes = useRef(0);
  const isSending = useRef(false);
  const isGone = useRef(false);
  useEffect(() => {
    // It is still there for as long as it takes to vanish.
    isGone.current = !isOpen;
    return () => {
      isGone.current = true;
      // Who closes it no longer wants what waits to be sent.
      dropChanges();
    };
  }, [isOpen]);

  async function look(form: FormData) {
    const before = changes.current;
    const found = await preview!.load(form);
    if (changes.current === before) show(found);
    setBusy(false);
  }
  async function send(form: FormData) {
    const answer = await submit(form);
    const refreshed = queries.invalidateQueries({
      predicate: ({ queryKey: [, path] }) => !OF_THE_PERSON.includes(String(path)),
    });
    // What is shown only once waits for no list that is read again.
    const isShown = isValidElement(answer) || typeof answer === "string";
    if (isGone.current) doneUnseen({ title: heading, ...(isShown && { outcome: answer }) });
    else if (isShown) {
      setOutcome(answer);
      setBusy(false);
    } else {
      setSaved(true);
      // Lists that have to wait are read again without it.
      await untilDoneOrWaiting(refreshed);
      // Whoever closed it meanwhile may be at it again.
      if (!isGone.current) close();
    }
  }
  /** What nobody has typed into follows: what was looked at before is not what would be done. */
  async function loadAgain() {
    await queries.invalidateQueries();
    changes.current++;
    show(undefined);
    setProblem(undefined);
  }
  async function run(work: Promise<void>, isChange: boolean) {
    setBusy(true);
    setProblem(undefined);
    try {
      await work;
    } catch (thrown) {
      const failed = asProblem(thrown);
      setProblem(failed);
      setBusy(false);
      // What waited and was dropped was not done, as whoever closed the form wanted.
      if (isGone.current && isChange && failed.status !== 429) doneUnseen({ title: heading, problem: failed });
    } finally {
      isSending.current = false;
    }
  }
  function begin(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    // One that comes before the buttons are off, or while it closes, is the same once more.
    if (isSending.current || isBusy) return;
    isSending.current = true;
    const { submitter } = event.nativeEvent as SubmitEvent;
    const isPreview = submitter instanceof HTMLButtonElement && submitter.value === "preview";
    const isChange = !isPreview && (!preview?.first || shown !== undefined);
    const form = new FormData(event.currentTarget);
    void run(isChange ? send(form) : look(form), isChange);
  }
  const isOver = outcome !== undefined;
  const mustLook = preview?.first === true && shown === undefined;
  return (
    <form
      onSubmit={begin}
      onChange={() => {
        changes.current++;
        show(undefined);
      }}
    >
      <DialogBody>
        <DialogTitle className={styles.title}>{heading}</DialogTitle>
        <DialogContent className={styles.fields}>
          <FormContext value={{ errors: problem?.errors ?? [], isSaved }}>
            {isOver ? <div role="status">{outcome}</div> : children}
          </FormContext>
          {!isOver && shown !== undefined && (
            <div role="status" ref={toBeSeen}>
              {shown}
            </div>
          )}
          {problem && (
            <div ref={toBeSeen}>
              <ProblemNotice problem={problem} />
            </div>
          )}
          {problem && CONFLICTS.includes(problem.code) && (
            <div>
              <Button onClick={() => void loadAgain()}>Load again</Button> What you typed stays.
            </div>
          )}
          {isBusy && (
            <>
              <Spinner
                size="tiny"
                delay={SPINNER_AFTER_MS}
                label={isSaved ? "Done. What is shown is read again" : "Waiting for the answer"}
                labelPosition="after"
              />
              {!isSaved && <Waiting />}
            </>
          )}
        </DialogContent>
        <DialogActions fluid>
          <DialogTrigger disableButtonEnhancement>
            <Button>{isOver || isSaved ? "Close" : "Cancel"}</Button>
          </DialogTrigger>
          {!isOver && preview && (
            <Button
              type="submit"
              value="preview"
              appearance={mustLook ? "primary" : "secondary"}
              disabledFocusable={isBusy}
            >
              {preview.action}
            </Button>
          )}
          {!isOver && !mustLook && (
            <Button type="submit" appearance="primary" disabledFocusable={isBusy}>
              {action}
            </Button>
          )}
        </DialogActions>
      </DialogBody>
    </form>
  );
}

/** Until it is done, or a call waits since there were too many. */
const untilDoneOrWaiting = (work: Promise<void>): Promise<void> =>
  new Promise((resolve) => {
    const forget = onWaiting(() => resolve());
    void work.finally(() => {
      forget();
      resolve();
    });
  });

/** Most answers are there before anybody would see that one waits. */
const SPINNER_AFTER_MS = 500;

/** What comes below a long form is scrolled to, unless a field above says what is wrong: then that is gone on with. */
function toBeSeen(element: HTMLElement | null): void {
  const wrong = element?.closest("form")?.querySelector<HTMLElement>("[aria-invalid=true]");
  if (wrong) wrong.focus();
  else element?.scrollIntoView({ block: "nearest" });
}

/** Somebody else was faster. */
const CONFLICTS: Problem["code"][] = ["preconditionFailed", "conflict", "alreadyExists"];
/** Who is signed in and the licence change by other ways. */
const OF_THE_PERSON = ["/auth/me", "/system/license/status", "/auth/sso/status"];

/** What was typed into a field of the form, without the spaces around it. */
export const typed = (form: FormData, name: string): string => String(form.get(name) ?? "").trim();

/** What was typed, null where that is nothing. */
export const typedOrNull = (form: FormData, name: string): string | null => typed(form, name) || null;

/** The end that was typed into an `EndField`, null where it was taken away; nothing where it was left as it is. */
export const endOf = <N extends string>(form: FormData, name: N): Partial<Record<N, string | null>> =>
  form.has(name)
    ? ({ [name]: typed(form, name) ? `${typed(form, name)}T00:00:00Z` : null } as Record<N, string | null>)
    : {};

/** Several, between spaces or commas. */
export const typedList = (form: FormData, name: string): string[] =>
  typed(form, name)
    .split(/[\s,;]+/)
    .filter(Boolean);

/** One of those that may be chosen, the first where the form has none. */
export const chosen = <const T extends string>(form: FormData, name: string, among: readonly T[]): T =>
  among.find((one) => one === form.get(name)) ?? among[0]!;

/** The members that have a value: a text that is not empty, whatever else is not null. */
export const given = <T extends Record<string, unknown>>(members: T): Partial<{ [K in keyof T]: NonNullable<T[K]> }> =>
  Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ) as never;
