// What both lessons share: nothing here is of one client.

/** Prints a step of the lesson. */
export const say = (step, told) => console.log(step, JSON.stringify(told));

/** What to decide by: `STALE expired`, `HELD 12000`. The sentence behind the colon is for people. */
export const head = (error) => error.message.split(":")[0];

/** TRYAGAIN asks for the same command again, with the same ids. */
export async function insist(call, tries = 50) {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (head(error) !== "TRYAGAIN" || --tries === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/** A consumer group that is there already will do. */
export const unlessThere = (error) => {
  if (!error.message.startsWith("BUSYGROUP")) throw error;
};

let last = 0n;

/** A seq that rises without being stored: unix time in ns, or one more than the last. As text, for it is far above 2^53, where numbers stop being exact. */
export const seq = () => {
  const now = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;
  last = now > last ? now : last + 1n;
  return String(last);
};

/** A stream entry's fields and values, in turn, as an object of text. An id that may be any bytes would stay a Buffer. */
export const textual = (fields) =>
  Object.fromEntries(fields.flatMap((name, place) => (place % 2 ? [] : [[String(name), String(fields[place + 1])]])));
