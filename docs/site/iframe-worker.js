// Browsers start no worker from a page that was opened as a file. There, this runs the worker's script in a frame that nobody sees, with the part of
// a worker's interface that the search of the site uses.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.waiting = [];
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        if (this.inside || !inside) return;
        const script = inside.document.createElement("script");
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        };
        inside.importScripts = (...urls) =>
          urls.reduce((last, next) => last.then(() => new Promise((done) => {
            const part = inside.document.createElement("script");
            part.src = next;
            part.onload = done;
            inside.document.body.append(part);
          })), Promise.resolve());
        script.src = url;
        script.onload = () => {
          this.inside = inside;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        };
        inside.document.body.append(script);
      });
      document.body ? document.body.append(frame) : document.addEventListener("DOMContentLoaded", () => document.body.append(frame));
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
    terminate() {}
  };
}
